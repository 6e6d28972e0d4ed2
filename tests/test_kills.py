"""kill -9 at random and at every point of a save; the same command then ends in the same bits."""

import random
import time

import pytest

from attune.files import sha256

from killing import bits, complaints, kill_again_and_again
from processes import KillPoints, kill, saved, start, wait
from tiny import write_recipe

pytestmark = pytest.mark.recipe

STEPS = 45
POINTS = 72  # of a start and of three saves, the last of which removes a checkpoint: from then on they repeat
MANY_STEPS = 130  # not done before the last point is reached: a start that is killed late lets several steps through
SETTINGS = ["train.save_every=1", "train.eval_every=20", "data.test=[]", "--workers=0"]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("kills"))


def words(recipe, run, *more, steps=STEPS):
    return ["train", str(recipe), f"run={run}", f"train.steps={steps}", *SETTINGS, *more]


def ending(run, steps=STEPS):
    """The SHA-256 sums of the last weights and optimizer, and what is called the best."""
    last = run / "checkpoints" / f"step-{steps:06d}"
    sums = [sha256(last / name) for name in ("model.safetensors", "optimizer.safetensors", "progress.json")]
    return [*sums, (run / "best.json").read_text()]


@pytest.fixture(scope="module")
def quiet(recipe, tmp_path_factory):
    """How runs end when nobody kills them, by number of ranks."""
    endings = {}

    def end(ranks, steps=STEPS):
        if (ranks, steps) not in endings:
            run = tmp_path_factory.mktemp("quiet") / "run"
            assert wait(start(words(recipe, run, steps=steps), ranks)) == [0] * ranks
            endings[ranks, steps] = ending(run, steps)
        return endings[ranks, steps]

    return end


def test_killed_at_every_point_of_a_save_it_ends_in_the_same_bits(recipe, quiet, tmp_path):
    log, run = tmp_path / "moments.txt", tmp_path / "run"
    counting = KillPoints(0, log)
    one_step = words(recipe, tmp_path / "counted", "train.warmup=0", "train.eval_every=1", steps=1)
    assert wait(start(one_step, 1, lambda _: counting.watch())) == [0]
    moments = log.read_text().splitlines()
    assert moments.count("rename") >= 2 and moments.count("fsync") >= 6
    kills = 0
    for moment in range(1, POINTS + 1):
        point = KillPoints(moment)
        (code,) = wait(start(words(recipe, run, steps=MANY_STEPS), 1, lambda _, point=point: point.watch()))
        kills += code == -9
    assert kills == POINTS < len(moments)
    assert wait(start(words(recipe, run, steps=MANY_STEPS))) == [0]
    assert ending(run, MANY_STEPS) == quiet(1, MANY_STEPS)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_killed_at_random_it_ends_in_the_same_bits(recipe, quiet, tmp_path, ranks):
    chance, run = random.Random(ranks), tmp_path / "run"
    for _ in range(4):
        goal = saved(run) + chance.randint(1, 8)
        processes = start(words(recipe, run), ranks)
        if chance.random() < 0.3:
            time.sleep(chance.uniform(0.0, 0.5))  # while it starts
        else:
            while saved(run) < goal and all(process.is_alive() for process in processes):
                time.sleep(0.005)
            time.sleep(chance.uniform(0.0, 0.05))
        kill(processes if chance.random() < 0.5 else [chance.choice(processes)])
        assert wait(processes) != [0] * ranks
    assert wait(start(words(recipe, run), ranks)) == [0] * ranks
    assert ending(run) == quiet(ranks)


def test_killed_on_changing_ranks_every_utterance_is_trained_once_an_epoch_and_the_bits_are_the_same(recipe, tmp_path):
    steps, settings = 60, ["train.strict=true", "train.save_every=1", "train.eval_every=5", "data.test=[]"]
    command = ["train", str(recipe), f"train.steps={steps}", *settings, "--workers=0"]
    quiet = tmp_path / "quiet"
    assert wait(start([*command, f"run={quiet}"])) == [0]
    run = tmp_path / "run"
    killed = kill_again_and_again([*command, f"run={run}"], run, tmp_path / "records", kills=7)
    assert killed.kills >= 5
    assert complaints(killed, [f"{number:05d}" for number in range(24)]) == []
    assert bits(run, steps) == bits(quiet, steps)
    assert (run / "best.json").read_text() == (quiet / "best.json").read_text()

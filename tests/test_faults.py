"""Ranks that die, hang, are stopped or have nothing to do: the group ends or goes on, and never waits for ever."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from attune.files import sha256
from attune.launch.group import start_group
from attune.processes import find_run_processes
from attune.run import Run

from processes import attune, kill, start, wait, wait_for_step
from tiny import EPOCH, write_recipe

pytestmark = pytest.mark.recipe

QUIET = ["train.eval_every=null", "train.keep_best=null", "data.test=[]", "train.warmup=0", EPOCH]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("faults"))


def words(recipe, run, *more, steps=6):
    return ["train", str(recipe), f"run={run}", f"train.steps={steps}", "train.save_every=1", *QUIET, *more]


def bits(run, steps):
    last = run / f"checkpoints/step-{steps:06d}"
    return [sha256(last / name) for name in ("model.safetensors", "optimizer.safetensors", "progress.json")]


def errors_to(folder: Path):
    """Each rank's stderr goes to a file."""
    folder.mkdir()

    def redirect(rank):
        sys.stderr = (folder / str(rank)).open("w", buffering=1)

    return redirect


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_is_named_and_ended_within_the_timeout(recipe, tmp_path, victim):
    run, errors = tmp_path / "run", tmp_path / "errors"
    ranks = start(words(recipe, run, "--timeout=4", "--workers=0", steps=100_000), 3, errors_to(errors))
    wait_for_step(run, 2)
    os.kill(ranks[victim].pid, signal.SIGSTOP)
    stopped = time.monotonic()
    codes = [rank.join(20) or rank.exitcode for rank in ranks]
    took = time.monotonic() - stopped
    kill(ranks)
    assert codes == [-9 if rank == victim else 1 for rank in range(3)]
    assert 3 < took < 10
    said = "".join(path.read_text() for path in errors.iterdir())
    assert said.count(f"Rank {victim} (process {ranks[victim].pid} on ") == 1 and "sent no heartbeat for 4 s" in said


def test_a_rank_that_lives_but_never_comes_is_named(recipe, tmp_path):
    run, errors = tmp_path / "run", tmp_path / "errors"
    to_file = errors_to(errors)

    def dawdle(rank):
        to_file(rank)
        if rank == 1:
            import attune.loading.begin as stage

            stage.adapt = lambda *_: time.sleep(600)

    ranks = start(words(recipe, run, "--timeout=3", "--workers=0"), 2, dawdle)
    codes = [rank.join(30) or rank.exitcode for rank in ranks]
    kill(ranks)
    assert codes == [1, -9]
    assert "Rank 1" in (errors / "0").read_text() and "kept the others waiting for 3 s" in (errors / "0").read_text()


@pytest.fixture(scope="module")
def quiet(recipe, tmp_path_factory):
    """How 40 steps on two ranks end in peace."""
    run = tmp_path_factory.mktemp("quiet") / "run"
    assert wait(start(words(recipe, run, "--workers=0", steps=40), 2)) == [0, 0]
    return bits(run, 40)


@pytest.mark.parametrize("victim", ["launcher", "rank 0", "reader"])
def test_whoever_is_killed_nothing_is_left_and_the_run_ends_in_the_same_bits(recipe, quiet, tmp_path, victim):
    run = tmp_path / "run"
    settings = words(recipe, run, "--workers=1", steps=40)
    command = [sys.executable, "-m", "attune", *settings, "--devices=2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as launcher:
        wait_for_step(run, 3)
        ranks, readers = family(launcher.pid)
        (name,) = {each.run for each in find_run_processes() if each.pid in ranks}
        os.kill({"launcher": launcher.pid, "rank 0": ranks[0], "reader": readers[0]}[victim], 9)
        assert_none_left(name)
        said = launcher.communicate(timeout=20)[1]
    assert launcher.returncode == (-9 if victim == "launcher" else 1)
    if victim == "rank 0":
        assert said.startswith("Rank 0 was killed by SIGKILL. Run the same command to resume")
        assert "\nframe #" not in said
        assert json.loads((run / "status.json").read_text())["message"] == "Rank 0 was killed by SIGKILL."
    assert wait(start(settings, 2)) == [0, 0]
    assert bits(run, 40) == quiet


def assert_none_left(name):
    killed = time.monotonic()
    while list(find_run_processes(name)) and time.monotonic() < killed + 5:
        time.sleep(0.05)
    assert not list(find_run_processes(name))


def test_a_group_whose_reader_is_killed_starts_again_and_the_run_ends_in_the_same_bits(recipe, quiet, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "attune", *words(recipe, run, "--devices=2", "--workers=1", steps=40)]
    with subprocess.Popen([*command, "--restarts=1"], stderr=subprocess.PIPE, text=True) as launcher:
        wait_for_step(run, 3)
        ranks, readers = family(launcher.pid)
        assert len(ranks) == 2
        (name,) = {each.run for each in find_run_processes() if each.pid in ranks}
        os.kill(readers[0], signal.SIGKILL)
        said = launcher.communicate(timeout=120)[1]
    assert launcher.returncode == 0, said
    assert "A loader worker was killed" in said and "(0 restarts left)" in said
    assert not list(find_run_processes(name))
    assert bits(run, 40) == quiet
    assert Run(run).state() == "done"


def test_a_reader_killed_while_a_step_is_shown_is_told_in_words(recipe, tmp_path):
    run, errors = tmp_path / "run", tmp_path / "errors"
    to_file = errors_to(errors)

    def kill_while_shown(rank):
        to_file(rank)
        import attune.display as progress

        real = progress.shown

        def shown(events, display):
            for event in real(events, display):
                for reader in multiprocessing.active_children():
                    reader.kill()
                    time.sleep(10)  # where torch now tells of it
                yield event

        progress.shown = shown

    assert wait(start(words(recipe, run, "--workers=1"), 1, kill_while_shown)) == [1]
    said = (errors / "0").read_text()
    assert "A loader worker was killed" in said and "Traceback" not in said
    assert (Run(run).state(), Run(run).status().message) == (
        "failed",
        "The caller stopped reading the events of the training.",
    )


def family(launcher: int) -> tuple[list[int], list[int]]:
    """The ranks that a launcher started, and the readers that they started."""
    found = list(find_run_processes())
    ranks = sorted(each.pid for each in found if each.parent == launcher)
    return ranks, sorted(each.pid for each in found if each.parent in ranks)


def test_a_group_whose_device_is_gone_starts_again_on_fewer_and_says_why_it_ended(recipe, tmp_path):
    run, told = tmp_path / "run", []
    there = [2]

    def take_a_device_away():
        wait_for_step(run, 3)
        there[0] = 1
        os.kill(family(os.getpid())[0][1], signal.SIGKILL)

    threading.Thread(target=take_a_device_away).start()
    settings = [*QUIET, "train.strict=true", "--workers=0"]
    command = ["train", str(recipe), f"run={run}", "train.steps=20", "train.save_every=1", *settings]
    outcome = start_group(lambda: there[0], command, restarts=1, log=told.append)
    assert outcome.code == 0 and told[0].startswith("Rank 1 was killed by SIGKILL. Restarting on 1 ranks")
    assert wait(start([*command[:2], f"run={tmp_path / 'quiet'}", *command[3:]], 1)) == [0]
    assert bits(run, 20) == bits(tmp_path / "quiet", 20)
    assert '"ranks": 1' in [line for line in (run / "log.jsonl").read_text().splitlines() if '"resumed"' in line][-1]


@pytest.mark.parametrize("moment", ["mkdir", "fsync", "rename"])
def test_sigterm_twice_in_mid_save_exits_75_with_one_step_on_all_ranks(recipe, tmp_path, moment):
    run = tmp_path / "run"

    def signal_in_save(rank):
        real, calls = getattr(os, moment), []

        def signalled(*arguments, **options):
            is_saving = bool(list(run.glob("checkpoints/.step-000002*"))) or "step-000002" in str(arguments)
            if rank == 0 and is_saving:
                calls.append(moment)
                if len(calls) <= 2:
                    os.kill(os.getpid(), signal.SIGTERM)
            return real(*arguments, **options)

        setattr(os, moment, signalled)

    ranks = start(words(recipe, run, "train.keep_last=5", "--workers=0", steps=5000), 2, signal_in_save)
    assert wait(ranks, 60) == [75, 75]
    assert Run(run).state() == "preempted"
    saved = sorted(folder.name for folder in (run / "checkpoints").iterdir())
    assert saved[-1] == "step-000003" and "step 3 is saved" in Run(run).status().message


def test_signals_twice_to_the_launcher_save_and_exit_75(recipe, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "attune", *words(recipe, run, "--devices=2", "--workers=1", steps=100_000)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as launcher:
        wait_for_step(run, 2)
        launcher.send_signal(signal.SIGTERM)
        launcher.send_signal(signal.SIGUSR1)
        time.sleep(0.05)
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(30) == 75
    assert Run(run).state() == "preempted"


@pytest.mark.parametrize(("utterances", "micros"), [(2, 4), (3, 1), (24, 3)])
def test_fewer_utterances_or_micro_batches_than_ranks_still_finish(tmp_path, utterances, micros):
    recipe = write_recipe(tmp_path, utterances=utterances)
    run = tmp_path / "run"
    settings = [f"batches.micros_per_step={micros}", "batches.micro_seconds=10", "--workers=0", "--timeout=30"]
    assert wait(start(words(recipe, run, *settings), 4), 60) == [0] * 4


def test_two_runs_started_at_once_both_finish(recipe, tmp_path):
    done: list[subprocess.CompletedProcess[str]] = []
    threads = [
        threading.Thread(target=lambda name=name: done.append(attune(*words(recipe, tmp_path / name), "--devices=2")))
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.returncode for each in done] == [0, 0]
    assert bits(tmp_path / "a", 6) == bits(tmp_path / "b", 6)

"""Every recipe that ships is right, and learns: two steps, killed between them, end in the bits of an unkilled run."""

import os
import signal
from pathlib import Path

import pytest

import attune
from attune import recipe as recipes
from attune.testing.data import make_corpus

from killing import bits
from processes import saved, start, wait
from tiny_whisper import MULTILINGUAL, write_whisper

SHIPPED = sorted((Path(recipes.__file__).parent / "recipes").glob("*.yaml"))
ELSEWHERE = [path for path in SHIPPED if path.stem.startswith(("superb", "template"))]  # test_superb, test_template
every_recipe = pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)

NEMO = """\
run: {folder}/nemo
data: {{train: [{corpus}]}}
task: {{name: transcribe, tokens: bpe, vocabulary: 40}}
model: {{family: transducer, encoder: contextnet, size: dummy, tokens: task}}
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.001}}
train: {{steps: 1}}
"""


@every_recipe
def test_every_recipe_that_ships_is_right_short_and_says_what_it_is(path):
    lines = path.read_text().splitlines()
    assert recipes.load(path).recipe.run == f"runs/{recipes.load(path).recipe.run.removeprefix('runs/')}"
    assert len(lines) <= 40 and lines[0].startswith("# ")


def test_the_recipes_folder_at_the_top_is_the_one_that_ships():
    top = Path(__file__).parents[1] / "recipes"
    assert [path.name for path in sorted(top.glob("*.yaml"))] == [path.name for path in SHIPPED]


def test_the_whisper_recipe_of_the_readme_pads_to_30_s_as_other_tools_do():
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert "attune train recipes/whisper.yaml" in readme
    assert recipes.load(Path("whisper")).recipe.model.config.window == "full"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus"), utterances=5, seed=1)


@pytest.fixture(scope="module")
def checkpoints(corpus, tmp_path_factory):
    """A small pretrained model for each family that has recipes with weights from elsewhere."""
    folder = tmp_path_factory.mktemp("pretrained")
    (folder / "nemo.yaml").write_text(NEMO.format(folder=folder, corpus=corpus))
    nemo = attune.train(folder / "nemo.yaml")
    return {"whisper": write_whisper(folder / "whisper", MULTILINGUAL), "transducer": nemo.model / "model.nemo"}


def small(path, corpus, checkpoints):
    """Overrides that make a recipe small and local, and leave everything else as it is."""
    recipe = recipes.load(path).recipe
    model = recipe.model.config
    words = [f"data.{split}=[{corpus}]" for split in ("train", "dev", "test") if recipe.task.name != "example"]
    words += ["train.steps=2", "train.warmup=1", "train.eval_every=2", "train.save_every=1"]
    if recipe.batches.micro_utterances:
        words += ["batches.micro_utterances=3"]
    if model.weights and not model.weights.startswith("attune://"):
        words += [f"model.weights={checkpoints[recipe.model.family]}"]
    if getattr(model, "size", None):
        words += ["model.size=dummy"]
    if recipe.task.name == "classify":
        words += ["task.label=register"]
    return words


def kill_when_saved(name):
    """Called in a process before it starts: it is killed at the moment when a file or folder gets this name."""
    real = os.rename

    def rename(source, target, **options):
        real(source, target, **options)
        if Path(target).name == name:
            os.kill(os.getpid(), signal.SIGKILL)

    os.rename = rename


def results(run):
    """What a run ends in: its last checkpoint, which one is the best, and its predictions."""
    files = ["best.json", *sorted(path.relative_to(run) for path in run.glob("predictions/*.jsonl"))]
    return bits(run, 2), [(str(name), (run / name).read_bytes()) for name in files]


@pytest.mark.recipe
@pytest.mark.parametrize("path", [path for path in SHIPPED if path not in ELSEWHERE], ids=lambda path: path.stem)
def test_takes_two_steps_and_killed_between_them_ends_in_the_same_bits(path, corpus, checkpoints, tmp_path):
    words = ["train", str(path), *small(path, corpus, checkpoints), "--workers=0", "--device=cpu"]
    quiet, killed = tmp_path / "quiet", tmp_path / "killed"
    assert wait(start([*words, f"run={quiet}"])) == [0]
    assert wait(start([*words, f"run={killed}"], before=lambda _: kill_when_saved("step-000001"))) == [-9]
    assert saved(killed) == 1
    assert wait(start([*words, f"run={killed}"])) == [0]
    assert '"event": "resumed", "step": 1,' in (killed / "log.jsonl").read_text()
    assert results(killed) == results(quiet)

"""Killed at any point of an export or an import, there is the whole model or nothing, and the same command goes on."""

import shutil

import pytest

from attune.files import sha256

from processes import KillPoints, start, wait
from tiny import write_recipe
from tiny_whisper import write_whisper

pytestmark = pytest.mark.recipe


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path) for path in files if path.name != "recipe.yaml"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A run, and a Whisper of transformers."""
    folder = tmp_path_factory.mktemp("points")
    recipe = write_recipe(folder, utterances=8)
    words = ["train", str(recipe), "train.steps=1", "train.warmup=0", "train.eval_every=null", "train.keep_best=null"]
    assert wait(start([*words, "data.test=[]", "--workers=0"])) == [0]
    return {"export": folder / "run", "import": write_whisper(folder / "whisper")}


@pytest.mark.parametrize("verb", ["export", "import"])
def test_the_whole_model_or_nothing(sources, tmp_path, verb):
    def words(to):
        return [verb, str(sources[verb]), "--to", str(tmp_path / to / "model")]  # its card has the folder's name

    log = tmp_path / "moments.txt"
    counting = KillPoints(0, log)
    assert wait(start(words("whole"), 1, lambda _: counting.watch())) == [0]
    whole = contents(tmp_path / "whole/model")
    assert "model.safetensors" in whole
    moments, codes = len(log.read_text().splitlines()), []
    assert moments > 3
    killed = tmp_path / "killed/model"
    for moment in range(1, moments + 1):  # each goes on from what those before it left
        point = KillPoints(moment)
        codes += wait(start(words("killed"), 1, lambda _, point=point: point.watch()))
        if killed.exists():
            assert contents(killed) == whole
            shutil.rmtree(killed)
    assert set(codes[:-2]) == {-9} and codes.count(-9) > moments - 3, codes
    assert wait(start(words("killed"))) == [0]
    assert contents(killed) == whole

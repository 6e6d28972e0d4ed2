"""The name of a shard says all that its predictions depend on."""

import pytest

from attune import recipe as recipes
from attune.cli import main
from attune.run import Run
from attune.site import this_site
from attune.stages.eval_shards import open_sharded
from attune.stages.eval_target import open_eval_target
from attune.stages.train import Request, train
from attune.world import World

from tiny import write_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = write_recipe(tmp_path_factory.mktemp("sharded"))
    loaded = recipes.load(recipe, ["data.test=[]", "train.steps=3", "train.eval_every=3"]).recipe
    list(train(loaded, Request(["attune"]), this_site(workers=0), World.alone()))
    return Run(recipe.parent / "run")


def names(run, *settings):
    target = open_eval_target(str(run.folder), settings, this_site(workers=0))
    opened = open_sharded(target, "dev", None, this_site(workers=0), World.alone())
    return [shard.name for shard in opened.shards()]


@pytest.fixture
def lm(run, tmp_path):
    text = str(run.folder.parent / "train" / "manifest.jsonl")
    path = tmp_path / "lm.arpa"
    assert main(["lm", text, "--order", "2", "--to", str(path), "--tokenizer", str(run.folder)]) == 0
    return path


SEARCH = ["decode.search=beam", "decode.beam=4"]


def test_another_language_model_of_the_same_name_is_decoded_anew(run, lm):
    before = names(run, *SEARCH, f"decode.lm={lm}")
    assert names(run, *SEARCH) != before != names(run, *SEARCH, f"decode.lm={lm}", "decode.lm_weight=0.5")
    lm.write_text(lm.read_text().replace("\n-", "\n-1", 1))
    assert names(run, *SEARCH, f"decode.lm={lm}") != before


def test_a_language_model_may_be_moved(run, lm, tmp_path):
    before = names(run, *SEARCH, f"decode.lm={lm}")
    assert names(run, *SEARCH, f"decode.lm={lm.rename(tmp_path / 'moved.arpa')}") == before

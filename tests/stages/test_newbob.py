"""A learning rate that follows the dev scores: the same bits over stops and on any ranks."""

import json
from itertools import pairwise

import pytest

from attune import recipe as recipes
from attune.errors import CheckpointError, ConfigError
from attune.site import this_site
from attune.stages.context import Stepped
from attune.stages.train import Request, train
from attune.testing.ranks import run_ranks
from attune.world import World

from killing import bits
from tiny import write_recipe

pytestmark = pytest.mark.recipe

SETTINGS = [
    *("data.test=[]", "optimizer.name=adadelta", "optimizer.lr=1.0", "train.warmup=0", "train.schedule=newbob"),
    *("train.anneal_factor=0.5", "train.eval_every=2", "train.save_every=3", "train.strict=true"),
]


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("newbob"))


def events_of(recipe_file, run, *overrides, world=None):
    recipe = recipes.load(recipe_file, [f"run={run}", *SETTINGS, *overrides]).recipe
    return train(recipe, Request(["attune"]), this_site(workers=0), world or World.alone())


def train_to_the_end(world, recipe_file, run):
    for _ in events_of(recipe_file, run, world=world):
        pass


def test_the_rate_falls_with_the_dev_scores_and_a_stopped_run_ends_in_the_same_bits(recipe_file, tmp_path):
    rates = {
        event.step.progress.position.step: event.step.lr
        for event in events_of(recipe_file, tmp_path / "whole")
        if isinstance(event, Stepped)
    }
    history = json.loads((tmp_path / "whole/checkpoints/step-000012/progress.json").read_text())["history"]
    assert len(history) == 6 and rates[1] == rates[4] == 1.0  # two scores are needed
    expected = 1.0
    for number, (before, after) in enumerate(pairwise(history)):
        expected *= 0.5 if before == 0 or (before - after) / before < 0.0025 else 1.0
        assert rates.get(2 * number + 5, expected) == expected
    assert expected < 1
    for stop in (5, 8):  # after a score that is in no checkpoint, and after one that is
        for event in events_of(recipe_file, tmp_path / "stopped"):
            if isinstance(event, Stepped) and event.step.progress.position.step == stop:
                break
    run_ranks(2, train_to_the_end, recipe_file, tmp_path / "stopped")
    assert bits(tmp_path / "stopped", 12) == bits(tmp_path / "whole", 12)


def test_what_the_rate_depends_on_may_not_change(recipe_file, tmp_path):
    for _ in events_of(recipe_file, tmp_path / "run", "train.steps=3"):
        pass
    with pytest.raises(CheckpointError, match="train.eval_every: 2 → 3"):
        next(events_of(recipe_file, tmp_path / "run", "train.steps=3", "train.eval_every=3"))


def test_newbob_needs_a_score_to_follow(recipe_file):
    with pytest.raises(ConfigError, match=r"newbob needs train.keep_best"):
        recipes.load(recipe_file, [*SETTINGS, "train.keep_best=null"])

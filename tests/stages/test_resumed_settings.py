"""What may change when a run goes on, and training by epochs."""

import json

import pytest

from attune import recipe as recipes
from attune.errors import CheckpointError, ConfigError
from attune.run import Run
from attune.site import this_site
from attune.stages.context import Evaluated, Started, Stepped
from attune.stages.train import Request, train
from attune.training import checkpoint
from attune.world import World

from tiny import write_recipe

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("resumed"))


def events_of(recipe_file, run, *overrides, reschedule=False):
    recipe = recipes.load(recipe_file, [f"run={run}", "data.test=[]", *overrides]).recipe
    return list(train(recipe, Request(["attune"], reschedule), this_site(workers=0), World.alone()))


def stepped(events):
    return [event.step.progress.position.step for event in events if isinstance(event, Stepped)]


def test_what_is_looked_at_and_saved_may_change_and_the_weights_are_the_same_bits(recipe_file, tmp_path):
    plain = events_of(recipe_file, tmp_path / "plain")
    stop = ["train.eval_every=6", "train.save_every=3"]
    recipe = recipes.load(recipe_file, [f"run={tmp_path / 'run'}", "data.test=[]", *stop]).recipe
    for event in train(recipe, Request(["attune"]), this_site(workers=0), World.alone()):
        if isinstance(event, Stepped) and event.step.progress.position.step == 4:
            break
    changes = ["train.eval_every=4", "train.save_every=5", "train.keep_last=9", "train.log_every=2", "decode.batch=2"]
    again = events_of(recipe_file, tmp_path / "run", *changes, "decode.precision=bf16", "train.eval_utterances=3")
    (started,) = (event for event in again if isinstance(event, Started))
    assert started.step == 3 and len(started.observed) == 7
    assert [event.step for event in again if isinstance(event, Evaluated)][:3] == [4, 8, 12]
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    changed = {line["key"]: (line["old"], line["new"]) for line in log if line["event"] == "changed"}
    assert changed["train.eval_every"] == (6, 4) and changed["decode.precision"] == ("fp32", "bf16")
    assert stepped(plain)[-1] == 12
    one, other = (checkpoint.folder_of(Run(tmp_path / name).checkpoints, 12) for name in ("plain", "run"))
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"another recipe:\n  optimizer.weight_decay: 0.0 → 0.1\n"):
        events_of(recipe_file, tmp_path / "run", *changes, "optimizer.weight_decay=0.1")


def test_patience_changes_with_the_schedule(recipe_file, tmp_path):
    events_of(recipe_file, tmp_path / "run", "train.steps=4", "train.patience=1")
    again = events_of(recipe_file, tmp_path / "run", "train.steps=4", "train.patience=2", reschedule=True)
    assert [str(change[0]) for change in again[0].rescheduled] == ["train.patience: 1 → 2"]


def test_epochs_are_as_many_steps_as_their_plans_have(recipe_file, tmp_path):
    events = events_of(recipe_file, tmp_path / "run", "train.steps=null", "train.epochs=2.5", "train.eval_every=null",
                       "train.keep_best=null")  # fmt: skip
    taken = stepped(events)
    epochs = [event.step.progress.position.epoch for event in events if isinstance(event, Stepped)]
    assert epochs[-1] == 2 and taken == list(range(1, len(taken) + 1))
    per_epoch = [epochs.count(number) for number in range(3)]
    assert per_epoch[2] == pytest.approx(per_epoch[0] / 2, abs=1)
    kept, model = (
        recipes.load(tmp_path / "run" / name, []).recipe.train for name in ("recipe.yaml", "model/recipe.yaml")
    )
    assert (kept.steps, kept.epochs) == (None, 2.5) and (model.steps, model.epochs) == (len(taken), None)
    again = events_of(recipe_file, tmp_path / "run", "train.steps=null", "train.epochs=3", "train.eval_every=null",
                      "train.keep_best=null", reschedule=True)  # fmt: skip
    change, old, new = again[0].rescheduled[0]
    assert str(change) == "train.epochs: 2.5 → 3.0" and old == 0.0 < new
    assert stepped(again)[-1] == sum(per_epoch[:2]) + len(stepped(again)) + per_epoch[2]


def test_exactly_one_of_steps_and_epochs_is_given_and_the_warmup_fits(recipe_file, tmp_path):
    for overrides in (["train.steps=null"], ["train.epochs=3"]):
        with pytest.raises(ConfigError, match="train: set exactly one of steps and epochs: (set one|remove one, e.g.)"):
            recipes.load(recipe_file, overrides)
    with pytest.raises(ConfigError, match=r"train.warmup: must be less than steps \(\d+\), found 500 \(1 epochs\)"):
        events_of(recipe_file, tmp_path / "run", "train.steps=null", "train.epochs=1", "train.warmup=500")
    stream = ["data.train=[]", "data.stream.shards=[x.tar]", "train.steps=null", "train.epochs=1"]
    with pytest.raises(ConfigError, match="train.epochs: the length of a stream is unknown"):
        recipes.load(recipe_file, stream)

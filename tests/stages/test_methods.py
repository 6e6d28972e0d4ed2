"""What a recipe may add to training: all of it survives a stop in the middle, and none of it leaks into the result."""

import json
from dataclasses import replace

import pytest

import attune
from attune import recipe as recipes
from attune.errors import ConfigError, Preempted
from attune.files import sha256
from attune.loading.pretrained import open_pretrained
from attune.run import Run
from attune.site import Site
from attune.sources import Cache
from attune.stages.context import Evaluated, Stepped
from attune.stages.eval_target import load_eval_target, open_eval_target
from attune.stages.train import Request, train
from attune.training.settings import AdaptConfig
from attune.world import World

from tiny import write_recipe

pytestmark = pytest.mark.recipe

EVERYTHING = [
    *("adapt.method=lora", "adapt.targets=[projection]", "adapt.rank=4", "adapt.dropout=0.1"),
    *("augment.speeds=[0.9, 1.0, 1.1]", "augment.gain_db=[-6, 6]", "augment.masks={time_masks: 1}"),
    *("optimizer.name=adamw8bit", "optimizer.layer_decay=0.9", "train.precision=fp16", "train.restart_every=3"),
]


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("methods"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(Cache(tmp_path_factory.mktemp("cache")), workers=0, device="cpu")


def run_of(recipe_file, folder, site, *overrides, stop=lambda: False):
    settings = ["train.steps=8", "train.eval_every=4", "train.save_every=2", "data.test=[]", *overrides]
    recipe = recipes.load(recipe_file, [f"run={folder}", *settings]).recipe
    return list(train(recipe, Request(["attune"], stop_requested=stop), site, World.alone()))


@pytest.mark.parametrize("optimizer", ["adamw8bit", "bitsandbytes"])
def test_everything_at_once_goes_on_in_the_same_bits_after_a_stop(recipe_file, site, tmp_path, optimizer):
    if optimizer == "bitsandbytes":
        pytest.importorskip("bitsandbytes")
    settings = [*EVERYTHING, f"optimizer.name={optimizer}"]
    run_of(recipe_file, tmp_path / "quiet", site, *settings)
    for stops in (3, 2):
        asked = iter([False] * (stops - 1) + [True])
        with pytest.raises(Preempted):
            run_of(recipe_file, tmp_path / "stopped", site, *settings, stop=lambda asked=asked: next(asked))
    run_of(recipe_file, tmp_path / "stopped", site, *settings)
    for name in ("model.safetensors", "optimizer.safetensors", "progress.json"):
        ends = [tmp_path / run / "checkpoints/step-000008" / name for run in ("quiet", "stopped")]
        assert sha256(ends[0]) == sha256(ends[1])


def test_lora_trains_little_and_exports_a_plain_model(recipe_file, site, tmp_path):
    started, *_ = run_of(recipe_file, tmp_path / "run", site, *EVERYTHING[:4])
    assert 0 < started.parameters.trainable < started.parameters.total / 2
    run = Run(tmp_path / "run")
    exported, checkpointed = open_pretrained(run.model), open_pretrained(run.folder)
    assert exported.recipe.adapt == AdaptConfig()
    assert set(exported.tensors()) == set(checkpointed.tensors())
    files = sorted((recipe_file.parent / "dev/audio").iterdir())
    by_run = attune.load(run.folder, device="cpu").transcribe(files)
    assert attune.load(run.model, device="cpu").transcribe(files) == by_run


def test_frozen_parts_stay_as_they_were(recipe_file, site, tmp_path):
    run_of(recipe_file, tmp_path / "first", site)
    weights = f"model.weights={tmp_path / 'first/model'}"
    run_of(recipe_file, tmp_path / "second", site, weights, "adapt.freeze=[head.projection]")
    before, after = (open_pretrained(tmp_path / name / "model").tensors() for name in ("first", "second"))
    changed = {name for name in before if not before[name].equal(after[name])}
    assert changed and not any(name.startswith("head.projection") for name in changed)


def test_training_ends_early_when_the_score_stalls_and_stays_ended(recipe_file, site, tmp_path):
    settings = ["optimizer.lr=1e-9", "train.steps=40", "train.warmup=0", "train.eval_every=2", "train.patience=2"]
    events = run_of(recipe_file, tmp_path / "run", site, *settings)
    steps = [event.step.progress.position.step for event in events if isinstance(event, Stepped)]
    assert steps[-1] == 6  # the best at 2, and nothing better at 4 and 6
    assert (events[-1].steps_taken, events[-1].stalled_at) == (6, 6)
    assert '"event": "stalled"' in (tmp_path / "run/log.jsonl").read_text()
    again = run_of(recipe_file, tmp_path / "run", site, *settings)
    assert not any(isinstance(event, Stepped) for event in again)
    assert (again[-1].steps_taken, again[-1].stalled_at) == (0, 6)


def test_a_stop_does_not_change_which_checkpoints_are_averaged(recipe_file, site, tmp_path):
    settings = [
        "train.steps=9",
        "train.save_every=3",
        "train.average=2",
        "train.eval_every=null",
        "train.keep_best=null",
    ]
    quiet = run_of(recipe_file, tmp_path / "quiet", site, *settings)
    asked = iter([False] * 6 + [True])
    with pytest.raises(Preempted):
        run_of(recipe_file, tmp_path / "stopped", site, *settings, stop=lambda: next(asked))
    stopped = run_of(recipe_file, tmp_path / "stopped", site, *settings)
    assert quiet[-1].averaged == stopped[-1].averaged == (6, 9)
    models = [tmp_path / run / "model/model.safetensors" for run in ("quiet", "stopped")]
    assert sha256(models[0]) == sha256(models[1])


def test_the_mean_of_checkpoints_is_exported(recipe_file, site, tmp_path):
    run_of(recipe_file, tmp_path / "run", site, "train.average=2")
    run = Run(tmp_path / "run")
    exported = open_pretrained(run.model).tensors()
    last = [
        replace(open_pretrained(run.model), weights=folder / "model.safetensors")
        for folder in sorted(run.checkpoints.iterdir())[-2:]
    ]
    one, other = (each.tensors() for each in last)
    for name, tensor in exported.items():
        assert tensor.allclose((one[name] + other[name]) / 2, atol=1e-7)


def test_a_score_that_does_not_exist_is_told_with_those_that_do(recipe_file, site, tmp_path):
    with pytest.raises(ConfigError, match=r"no score 'dev\.weer'; did you mean 'dev\.wer'"):
        run_of(recipe_file, tmp_path / "run", site, "train.keep_best=dev.weer")


def test_augmentation_changes_what_is_heard_in_training_only(recipe_file, site, tmp_path):
    plain = run_of(recipe_file, tmp_path / "plain", site)
    varied = run_of(recipe_file, tmp_path / "varied", site, "augment.speeds=[0.8, 1.2]")

    def seconds(events):
        return [event.step.audio_seconds for event in events if isinstance(event, Stepped)]

    assert seconds(plain) != seconds(varied)
    sizes = [len(event.evaluation.predictions) for event in varied if isinstance(event, Evaluated)]
    assert sizes == [6, 6]
    assert json.loads((tmp_path / "varied/start.json").read_text())["new_tensors"] == []


def test_a_recipe_without_lora_scores_the_weights_of_a_run_with_it(recipe_file, site, tmp_path):
    run_of(recipe_file, tmp_path / "run", site, *EVERYTHING[:4])
    subject = open_eval_target(str(recipe_file), [f"model.weights={tmp_path / 'run'}"], site)
    plain = load_eval_target(subject.pretrained, site, World.alone()).task_model.model.state_dict()
    exported = open_pretrained(tmp_path / "run/model").tensors()
    assert all(tensor.equal(exported[name]) for name, tensor in plain.items())


@pytest.mark.parametrize(
    ("overrides", "kind", "beam"),
    [
        ([], "beam", 4),
        (["decode.search=greedy"], "greedy", 8),  # the beam's own settings are left behind
        (["decode.beam=2"], "beam", 2),
        (["decode.final.beam=3"], "beam", 3),
        (["decode.final=null"], "greedy", 8),
    ],
)
def test_an_evaluation_searches_as_it_is_told_to(recipe_file, site, run_with_final, overrides, kind, beam):
    on_run = open_eval_target(str(run_with_final), overrides, site)
    final = recipe_file.with_name("final.yaml")
    final.write_text(f"base: {recipe_file.name}\ndecode: {{final: {{search: beam, beam: 4}}}}\n")
    in_recipe = open_eval_target(str(final), [f"model.weights={run_with_final}", *overrides], site)
    for subject in (on_run, in_recipe):
        decode = subject.pretrained.recipe.decode
        assert ((decode.final or decode).search, (decode.final or decode).beam) == (kind, beam)


@pytest.fixture(scope="module")
def run_with_final(recipe_file, site, tmp_path_factory):
    folder = tmp_path_factory.mktemp("final") / "run"
    run_of(recipe_file, folder, site, "decode.final={search: beam, beam: 4}", "train.steps=3")
    return folder


def test_a_run_that_averages_is_evaluated_by_its_mean(recipe_file, site, tmp_path):
    run_of(recipe_file, tmp_path / "run", site, "train.average=2")
    by_run, exported = (open_pretrained(folder).tensors() for folder in (tmp_path / "run", tmp_path / "run/model"))
    assert all(tensor.equal(exported[name]) for name, tensor in by_run.items())

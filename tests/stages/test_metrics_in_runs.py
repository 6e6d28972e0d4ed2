"""Runs of tasks whose scores are not error rates in percent: decibels, and scores of a whole set."""

import json
from dataclasses import replace

import pytest

from attune import recipe as recipes
from attune.cli import main
from attune.errors import ConfigError, SourceError
from attune.loading.lock import read_lock
from attune.run import Run
from attune.site import Site
from attune.sources import Cache
from attune.stages.check import check_recipe
from attune.stages.context import Evaluated, Finished
from attune.stages.train import Request, train
from attune.testing.ranks import run_ranks
from attune.world import World

from tiny import EPOCH, write_recipe

pytestmark = pytest.mark.recipe

DECIBELS = ["task.name=toy.decibels", "train.keep_best=dev.fidelity", "train.eval_every=2", "train.save_every=2"]


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("metrics"))


@pytest.fixture
def site(tmp_path):
    return Site(Cache(tmp_path / "cache"), workers=0, device="cpu")


def loaded(recipe_file, run, *overrides):
    return recipes.load(recipe_file, [f"run={run}", *overrides]).recipe


def events_of(recipe, site, world=None):
    return list(train(recipe, Request(["attune", "train"]), site, world or World.alone()))


def dev_scores(events, name):
    return {
        event.step: event.evaluation.scores.values[name].value
        for event in events
        if isinstance(event, Evaluated) and event.evaluation.split == "dev"
    }


def test_the_checkpoint_with_the_most_decibels_is_kept_and_training_goes_on_while_they_rise(
    recipe_file, site, tmp_path
):
    run = Run(tmp_path / "run")
    events = events_of(loaded(recipe_file, run.folder, *DECIBELS, EPOCH, "train.patience=2", "data.test=[]"), site)
    decibels = dev_scores(events, "fidelity")
    assert list(decibels) == [2, 4, 6, 8, 10, 12]  # had fewer been better, it would have stopped at the third
    highest = max(decibels, key=lambda step: (decibels[step], -step))
    assert highest != 2 and run.best().step == events[-1].best_step == highest
    assert (run.checkpoints / f"step-{highest:06d}").is_dir()


def test_training_stops_early_when_the_decibels_do_not_rise(recipe_file, site, tmp_path):
    # Weights that do not move give the same score again and again.
    settings = [*DECIBELS, "optimizer.lr=1e-12", "train.patience=2", "data.test=[]"]
    (*events, finished) = events_of(loaded(recipe_file, tmp_path / "run", *settings), site)
    assert isinstance(finished, Finished) and finished.stalled_at == 6 and finished.best_step == 2
    assert len(dev_scores(events, "fidelity")) == 3


def test_a_damaged_best_checkpoint_gives_way_to_the_one_with_the_next_most_decibels(recipe_file, site, tmp_path):
    run = Run(tmp_path / "run")
    recipe = loaded(recipe_file, run.folder, *DECIBELS, "train.keep_last=9", "data.test=[]")
    decibels = dev_scores(events_of(recipe, site), "fidelity")
    (run.folder / "best.json").write_text('{"metric": "dev.fidelity", "value": 99.0, "step": 4}')
    (run.checkpoints / "step-000004/model.safetensors").write_bytes(b"broken")
    events_of(recipe, site)
    others = {step: value for step, value in decibels.items() if step != 4}
    assert run.best().step == max(others, key=lambda step: (others[step], -step))


def test_scores_are_printed_and_kept_with_their_unit(recipe_file, tmp_path, capsys):
    run = tmp_path / "run"
    words = [str(recipe_file), f"run={run}", *DECIBELS, "train.steps=4", "--workers=0"]
    assert main(["train", *words]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("step 4: dev fidelity "))
    assert " dB (95 % CI " in line and "normalizer" not in line
    assert main(["evaluate", str(run), "--on", "dev", "--workers=0"]) == 0
    assert " dB [" in capsys.readouterr().out
    saved = json.loads((run / "scores.json").read_text())["dev"]
    assert saved["scores"]["fidelity"].items() >= {"unit": "dB", "higher_is_better": True}.items()
    assert saved["conditions"] == {} and saved["utterances"] == 6


@pytest.fixture
def trials(recipe_file, tmp_path):
    ids = [json.loads(row)["id"] for row in (recipe_file.parent / "dev/manifest.jsonl").read_text().splitlines()]
    path = tmp_path / "trials.txt"
    path.write_text("".join(f"{a} {b}\n" for a in ids for b in ids if a < b))
    return path


def trial_settings(trials):
    task = f"task={{name: toy.trials, label: speaker, trials: {trials}}}"
    return [task, "train.keep_best=dev.agreement", "train.steps=3", "train.eval_every=3"]


def test_scores_of_a_whole_set_use_the_files_that_the_task_asks_for(recipe_file, site, tmp_path, trials):
    def evaluations(world):
        recipe = loaded(recipe_file, tmp_path / f"{world.size}", *trial_settings(trials))
        return [event.evaluation for event in events_of(recipe, site, world) if isinstance(event, Evaluated)]

    (alone,) = run_ranks(1, evaluations)
    two, _ = run_ranks(2, evaluations)
    assert [each.scores.counts for each in alone] == [{"trials": 15}] * 2
    assert alone[0].rank_counts == ({"predictions": 6},)
    assert sum(counts["predictions"] for counts in two[0].rank_counts) == 6 and len(two[0].rank_counts) == 2
    run = Run(tmp_path / "1")
    assert run.best().metric == "dev.agreement"
    assert str(trials) in read_lock(run.lock) and str(recipe_file.parent / "train/manifest.jsonl") in read_lock(
        run.lock
    )
    assert events_of(run.recipe(), site)[0].step == 3  # it goes on with the longer lock


def test_a_set_is_not_scored_by_its_parts(recipe_file, site, tmp_path, trials):
    recipe = loaded(recipe_file, tmp_path / "run", *trial_settings(trials), "train.eval_utterances=3")
    with pytest.raises(ConfigError, match=r"train\.eval_utterances: this task is scored over whole sets"):
        events_of(recipe, site)


def test_a_trial_list_that_is_missing_is_found_before_training_and_by_check(recipe_file, site, tmp_path, trials):
    trials.unlink()
    recipe = loaded(recipe_file, tmp_path / "run", *trial_settings(trials))
    with pytest.raises(SourceError, match=r"trials\.txt"):
        events_of(recipe, site)
    assert not any((tmp_path / "run/checkpoints").glob("step-*"))
    check = check_recipe(replace(recipe, run=str(tmp_path / "other")), False, site)
    with pytest.raises(StopIteration) as end:
        while True:
            next(check)
    assert any("trials.txt" in trouble for trouble in end.value.value.troubles)

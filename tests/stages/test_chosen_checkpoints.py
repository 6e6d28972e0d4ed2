"""RUN@step-N, RUN@best and RUN@last wherever a model is named."""

import json

import pytest
from safetensors.torch import load_file

import attune
from attune import recipe as recipes
from attune.cli import main
from attune.errors import ModelError
from attune.loading.pretrained import locate_model
from attune.run import Run
from attune.site import this_site
from attune.stages.eval_target import open_eval_target
from attune.stages.train import Request, train
from attune.world import World

from tiny import write_recipe


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("chosen"))


@pytest.fixture(scope="module")
def run(recipe_file):
    settings = ["data.test=[]", "train.steps=6", "train.eval_every=2", "train.save_every=2", "train.keep_last=9"]
    recipe = recipes.load(recipe_file, settings).recipe
    list(train(recipe, Request(["attune"]), this_site(workers=0), World.alone()))
    return Run(recipe_file.parent / "run")


def weights_of(run, step):
    return load_file(run.checkpoints / f"step-{step:06d}" / "model.safetensors")


def test_a_checkpoint_is_chosen_by_step_best_and_last(run):
    cache = this_site().cache
    assert locate_model(f"{run.folder}@step-2", cache).name == "step-000002"
    assert locate_model(f"{run.folder}@step-000004", cache).name == "step-000004"
    assert locate_model(f"{run.folder}@last", cache).name == "step-000006"
    assert locate_model(f"{run.folder}@best", cache).name == f"step-{run.best().step:06d}"
    with pytest.raises(ModelError, match="no checkpoint step-3. It has @step-2, @step-4, @step-6"):
        locate_model(f"{run.folder}@step-3", cache)
    with pytest.raises(ModelError, match="run has no checkpoint '400'. Use @best, @last or @step-N."):
        locate_model(f"{run.folder}@400", cache)
    with pytest.raises(ModelError, match="has no checkpoints to choose"):
        locate_model(f"{run.model}@best", cache)


def test_a_chosen_checkpoint_is_evaluated_and_the_runs_own_scores_stay(run, capsys):
    before = run.scores()
    assert main(["evaluate", f"{run.folder}@step-2", "--on", "dev", "--workers=0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]["cer"]["value"]
    log = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert [line["cer"] for line in log if line["event"] == "scores" and line["step"] == 2] == [found]
    assert run.scores() == before
    target = open_eval_target(f"{run.folder}@step-2", ["decode.search=beam", "decode.beam=2"], this_site())
    assert target.pretrained.step == 2 and target.pretrained.recipe.decode.beam == 2


def test_a_chosen_checkpoint_transcribes_and_is_exported(run, recipe_file, tmp_path):
    audio = recipe_file.parent / "dev/audio/00000.wav"
    assert main(["export", f"{run.folder}@step-4", "--to", str(tmp_path / "four")]) == 0
    exported = load_file(tmp_path / "four/model.safetensors")
    assert all((exported[name] == tensor).all() for name, tensor in weights_of(run, 4).items())
    texts = {attune.load(each, device="cpu").transcribe(audio) for each in (f"{run.folder}@step-4", tmp_path / "four")}
    assert len(texts) == 1


def test_a_run_starts_from_a_chosen_checkpoint_and_locks_it(run, recipe_file, tmp_path):
    settings = [f"model.weights={run.folder}@step-2", f"run={tmp_path / 'warm'}", "train.steps=1", "train.warmup=0"]
    settings += ["train.eval_every=null", "train.keep_best=null", "data.test=[]", "optimizer.lr=1e-12"]
    list(train(recipes.load(recipe_file, settings).recipe, Request(["attune"]), this_site(workers=0), World.alone()))
    warm = load_file(tmp_path / "warm/model/model.safetensors")
    assert all(tensor.sub(warm[name]).abs().max() < 1e-6 for name, tensor in weights_of(run, 2).items())
    locked = json.loads((tmp_path / "warm/sources.lock.json").read_text())["sources"]
    (files,) = (each["files"] for each in locked if each["source"].endswith("@step-2"))
    assert list(files) == ["model.safetensors"]


def test_chosen_checkpoints_are_averaged(run, tmp_path, capsys):
    names = [f"{run.folder}@step-{step}" for step in (2, 6)]
    assert main(["average", *names, "--to", str(tmp_path / "mean")]) == 0
    two, six, mean = weights_of(run, 2), weights_of(run, 6), load_file(tmp_path / "mean/model.safetensors")
    assert all((mean[name].double() - (two[name].double() + six[name].double()) / 2).abs().max() < 1e-6 for name in two)
    assert main(["average", names[0], "--to", str(tmp_path / "one")]) == 2
    assert "needs two models" in capsys.readouterr().err

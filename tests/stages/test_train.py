import fcntl
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from attune import recipe as recipes
from attune.corpora import open_manifest
from attune.errors import CheckpointError, ConfigError, DataError, ModelError, Preempted, TrainingError
from attune.files import sha256
from attune.loading.data import open_split, planner, training_rows
from attune.loading.lock import read_lock
from attune.loading.pretrained import export, open_pretrained
from attune.run import Run
from attune.site import Site
from attune.sources import Cache
from attune.stages import finish as stages_finish
from attune.stages.check import check_recipe
from attune.stages.context import Evaluated, Finished, Saved, Started, Stepped
from attune.stages.eval_target import load_eval_target
from attune.stages.evaluate import Decoding, evaluation_batches
from attune.stages.train import Request, train
from attune.testing.ranks import run_ranks
from attune.training import checkpoint
from attune.training.sharding import has_slices
from attune.world import World

from tiny import EPOCH, write_recipe

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("train"))


@pytest.fixture
def site(tmp_path):
    return Site(Cache(tmp_path / "cache"), workers=0, device="cpu")


def loaded(recipe_file, run, *overrides):
    return recipes.load(recipe_file, [f"run={run}", *overrides]).recipe


def events_of(recipe, site, **request):
    return list(train(recipe, Request(["attune", "train"], **request), site, World.alone()))


def logged_lines(run):
    return [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(recipe_file, tmp_path_factory):
    """One whole run, for the tests that look at what it leaves."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = loaded(recipe_file, folder / "run")
    return recipe, Run(folder / "run"), events_of(recipe, Site(Cache(folder / "cache"), workers=0, device="cpu"))


def test_both_of_two_ranks_decode_something_of_a_set_that_fits_one_batch(finished, site, tmp_path):
    recipe, run, _ = finished
    model = load_eval_target(open_pretrained(run.folder), site, World.alone())
    dev = open_manifest(Path(recipe.data.dev[0]), tmp_path / "index")
    worlds = [World(rank, 2, torch.device("cpu")) for rank in (0, 1)]
    shares = [list(evaluation_batches(model, dev, 32, recipe, site, world)) for world in worlds]
    ids = [[id for micro in share for id in micro.batch.ids] for share in shares]
    assert all(ids) and sorted(ids[0] + ids[1]) == sorted(each.id for each in dev)


def slices_exported(world, recipe, folder):
    """Whether the model that a rank exports is its slices of one."""
    found = []

    def look(place, recipe, run, model, **options):
        found.append(has_slices(model.module))
        export(place, recipe, run, model, **options)

    stages_finish.export = look  # in this rank's own process
    for _ in train(recipe, Request(["attune", "train"]), Site(Cache(folder), workers=0, device="cpu"), world):
        pass
    return found


def test_at_the_end_ranks_that_share_have_slices_and_export_and_score_the_whole(recipe_file, tmp_path):
    dev = recipes.load(recipe_file).recipe.data.dev[0]
    settings = [f"data.test=[{dev}]", "train.steps=2", "train.warmup=0", "train.save_every=2"]
    plain, full = (loaded(recipe_file, tmp_path / kind, *settings, f"train.shard={kind}") for kind in ("none", "full"))
    assert run_ranks(2, slices_exported, plain, tmp_path / "cache") == [[False], []]
    assert run_ranks(2, slices_exported, full, tmp_path / "cache") == [[True], []]
    runs = [Run(tmp_path / kind) for kind in ("none", "full")]
    saved = checkpoint.tensors(runs[1].checkpoints / "step-000002")
    found = load_file(runs[1].model / "model.safetensors")
    assert found.keys() == saved.keys() and all(torch.equal(found[name], saved[name]) for name in saved)
    assert runs[0].scores()["test"]["scores"] == runs[1].scores()["test"]["scores"]


def test_a_strict_run_leaves_torch_as_it_found_it(recipe_file, tmp_path, site):
    def settings():
        return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()

    before, meanwhile = settings(), set()
    recipe = loaded(recipe_file, tmp_path / "run", "train.strict=true", "train.steps=3")
    for _ in train(recipe, Request(["attune", "train"]), site, World.alone()):
        meanwhile.add(settings())
    assert (meanwhile, settings()) == ({(1, True)}, before)


def test_a_run_leaves_all_that_is_needed_to_understand_and_repeat_it(finished):
    recipe, run, _ = finished
    names = {path.name for path in run.folder.iterdir() if not path.name.startswith(".")}
    assert names >= {
        *("recipe.yaml", "environment.json", "command.txt", "log.jsonl", "status.json", "best.json"),
        *("checkpoints", "data", "task", "assets", "predictions", "scores.json", "model", "tensorboard"),
    }
    assert run.recipe() == recipe
    assert json.loads((run.folder / "status.json").read_text())["state"] == "done"
    assert json.loads((run.folder / "environment.json").read_text())["packages"]["torch"]
    scores = json.loads((run.folder / "scores.json").read_text())["test"]
    assert scores["counts"]["num_scored_sents"] == scores["utterances"] == 6
    assert scores["conditions"] == {"normalizer": "none"}
    assert scores["scores"]["wer"].keys() == {"value", "low", "high", "unit", "higher_is_better"}


def test_it_begins_by_showing_the_first_example_as_the_model_learns_it(recipe_file, finished, site):
    _, run, events = finished
    example = events[0].example
    assert example and example.reads == example.reference and example.tokens == len(example.reference)
    logged = [line for line in logged_lines(run) if line["event"] == "example"]
    assert [(line["id"], line["reads"], line["target"]) for line in logged] == [
        (example.id, example.reads, example.target)
    ]
    check = check_recipe(finished[0], False, site)
    with pytest.raises(StopIteration) as end:
        while True:
            next(check)
    assert end.value.value.example == example


def test_a_run_that_goes_on_does_not_show_it_again(recipe_file, tmp_path, site):
    recipe = loaded(recipe_file, tmp_path / "run", "train.steps=6")
    assert events_of(recipe, site)[0].example
    longer = loaded(recipe_file, tmp_path / "run", "train.steps=7")
    assert events_of(longer, site, reschedule=True)[0].example is None


def test_it_evaluates_and_saves_when_the_recipe_says(finished):
    _, run, events = finished
    steps = [event.step.progress.position.step for event in events if isinstance(event, Stepped)]
    assert steps == list(range(1, 13))
    assert [event.step for event in events if isinstance(event, Evaluated)][:2] == [6, 12]
    assert {3, 6, 9, 12} <= {event.step for event in events if isinstance(event, Saved)}
    kept = sorted(path.name for path in run.checkpoints.iterdir())
    best = f"step-{run.best().step:06d}"
    assert kept == sorted({best, "step-000009", "step-000012"})


def test_the_log_has_every_step_once(finished):
    _, run, _ = finished
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "step"] == list(range(1, 13))


def test_the_log_is_json_for_every_reader_whatever_the_figures_are(tmp_path):
    run = Run(tmp_path)
    run.log("step", step=1, loss=float("nan"), gradient_norm=float("inf"), lr=0.5)

    def refuse(constant):
        raise ValueError(constant)

    line = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=refuse)
    assert (line["loss"], line["gradient_norm"], line["lr"]) == (None, None, 0.5)


def test_a_finished_run_trains_no_further(finished, site):
    recipe, run, _ = finished
    before = (run.checkpoints / "step-000012" / "manifest.json").read_text()
    again = events_of(recipe, site)
    assert not any(isinstance(event, Stepped) for event in again)
    assert isinstance(again[-1], Finished) and again[-1].steps_taken == 0
    assert (run.checkpoints / "step-000012" / "manifest.json").read_text() == before


def test_a_directory_of_another_recipe_is_refused_with_the_difference(finished, site):
    recipe, _, _ = finished
    with pytest.raises(CheckpointError, match=r"seed: 17 → 18"):
        events_of(replace(recipe, seed=18), site)


def test_a_changed_schedule_is_refused_unless_asked_for_and_its_rates_are_told(recipe_file, site, tmp_path):
    first = loaded(recipe_file, tmp_path / "run", "train.steps=4", "data.test=[]")
    events_of(first, site)
    longer = loaded(recipe_file, tmp_path / "run", "train.steps=6", "data.test=[]")
    with pytest.raises(CheckpointError, match=r"train.steps: 4 → 6[\s\S]*--reschedule"):
        events_of(longer, site)
    started = events_of(longer, site, reschedule=True)[0]
    (change,) = started.rescheduled
    assert started.step == 4 and change[0].key == "train.steps" and change[1] == 0.0 < change[2]


def test_a_recipe_may_still_change_while_nothing_has_been_trained(recipe_file, site, tmp_path):
    with pytest.raises(DataError):
        events_of(loaded(recipe_file, tmp_path / "run", "data.max_seconds=0.2"), site)
    events = events_of(
        loaded(recipe_file, tmp_path / "run", "task.tokens=bpe", "task.vocabulary=20", "train.steps=3"), site
    )
    assert isinstance(events[-1], Finished)


def test_what_was_prepared_for_a_run_that_trained_nothing_is_prepared_anew(recipe_file, site, tmp_path):
    """Its data may have changed since: a vocabulary of other rows would be learned without a word."""
    folder, run = tmp_path / "corpus", Run(tmp_path / "run")
    shutil.copytree(recipe_file.parent / "train", folder)
    manifest = folder / "manifest.jsonl"
    recipe = loaded(recipe_file, run.folder, f"data.train=[{manifest}]", "data.test=[]", "train.steps=3")
    first = train(recipe, Request(["attune", "train"]), site, World.alone())
    next(first)
    first.close()
    (run.assets / "of_before.txt").touch()
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    manifest.write_text("".join(json.dumps({**row, "text": f"{row['text']} ß"}) + "\n" for row in rows))
    events_of(recipe, site)
    assert "ß" in json.loads((run.task / "characters.json").read_text())
    assert not list(run.assets.iterdir())
    assert read_lock(run.lock)[str(manifest)].files["manifest.jsonl"].sha256 == sha256(manifest)


def test_training_data_that_changed_is_refused(recipe_file, site, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(recipe_file.parent / "train", folder)
    recipe = loaded(recipe_file, tmp_path / "run", f"data.train=[{folder}/manifest.jsonl]", "data.test=[]")
    asked = iter([False] * 4 + [True] * 10)
    with pytest.raises(Preempted):
        events_of(recipe, site, stop_requested=lambda: next(asked))
    rows = (folder / "manifest.jsonl").read_text().splitlines(keepends=True)
    (folder / "manifest.jsonl").write_text("".join(rows[:-1]))
    with pytest.raises(CheckpointError, match=r"training data \(manifest\) has changed"):
        events_of(recipe, site)


def test_noises_that_changed_are_refused(recipe_file, site, tmp_path):
    noises = tmp_path / "noises"
    shutil.copytree(recipe_file.parent / "dev/audio", noises)
    settings = [f"augment.noise.folder={noises}", "data.test=[]"]
    recipe = loaded(recipe_file, tmp_path / "run", *settings)
    asked = iter([False] * 4 + [True] * 10)
    with pytest.raises(Preempted):
        events_of(recipe, site, stop_requested=lambda: next(asked))
    one = next(noises.iterdir())
    shutil.copy(one, noises / "another.wav")
    with pytest.raises(CheckpointError, match="recordings of augment have changed"):
        events_of(recipe, site)
    (noises / "another.wav").unlink()
    assert isinstance(events_of(recipe, site)[-1], Finished)


def test_it_is_said_what_the_mean_is_of_each_time(recipe_file, site, tmp_path):
    settings = ["train.average=4", "train.keep_last=4", "train.save_every=6", "train.eval_every=3", "data.test=[]"]
    recipe = loaded(recipe_file, tmp_path / "run", *settings, "train.keep_best=null")
    for _ in range(2):
        (*_, finished) = events_of(recipe, site)
        assert (finished.best_step, finished.averaged) == (12, (6, 12))


def test_a_run_goes_on_when_the_weights_it_started_from_are_gone(finished, recipe_file, site, tmp_path):
    shutil.copytree(finished[1].model, tmp_path / "weights")
    recipe = loaded(recipe_file, tmp_path / "run", f"model.weights={tmp_path / 'weights'}", "data.test=[]")
    asked = iter([False] * 4 + [True] * 10)
    with pytest.raises(Preempted):
        events_of(recipe, site, stop_requested=lambda: next(asked))
    shutil.rmtree(tmp_path / "weights")
    assert isinstance(events_of(recipe, site)[-1], Finished)


def test_a_stop_request_saves_and_the_same_command_goes_on(recipe_file, site, tmp_path):
    recipe = loaded(recipe_file, tmp_path / "run", "train.save_every=100", "train.eval_every=100", "data.test=[]")
    asked = iter([False] * 4 + [True] * 10)
    with pytest.raises(Preempted, match="step 5 is saved"):
        events_of(recipe, site, stop_requested=lambda: next(asked))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "preempted"
    started = events_of(recipe, site)[0]
    assert isinstance(started, Started) and started.step == 5


def stopped_while_decoding(split, recipe, site, world):
    """What a run says that is asked to stop, on its first rank only, while a split is decoded."""
    asked = []
    events = train(recipe, Request(["attune"], stop_requested=lambda: bool(asked) and world.is_first), site, world)
    with pytest.raises(Preempted) as told:
        asked.extend(1 for event in events if isinstance(event, Decoding) and event.split == split)
    return str(told.value)


def test_a_stop_request_during_final_scoring_is_heard_on_all_ranks_and_the_same_command_goes_on(
    recipe_file, site, tmp_path
):
    settings = ["train.steps=3", "batches.micro_utterances=1", "batches.micro_seconds=null"]
    recipe = loaded(recipe_file, tmp_path / "run", *settings)
    told = run_ranks(2, lambda world: stopped_while_decoding("test", recipe, site, world))
    assert all("Stopped while decoding test" in each for each in told)
    assert Run(tmp_path / "run").state() == "preempted" and not Run(tmp_path / "run").predictions("test").exists()
    again = events_of(recipe, site)
    assert again[0].step == 3 and len(again[-2].evaluation.predictions) == 6


def test_a_stop_request_during_a_dev_scoring_is_heard_before_the_next_step(recipe_file, site, tmp_path):
    recipe = loaded(recipe_file, tmp_path / "run", "train.eval_every=2", "train.save_every=100", "data.test=[]")
    told = run_ranks(2, lambda world: stopped_while_decoding("dev", recipe, site, world))
    assert all("step 2 is saved" in each for each in told)
    assert events_of(recipe, site)[0].step == 2


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(recipe_file, site, tmp_path):
    recipe = loaded(recipe_file, tmp_path / "run", "train.steps=9", "data.test=[]")
    events_of(recipe, site)
    weights = tmp_path / "run/checkpoints/step-000009/model.safetensors"
    expected = sha256(weights)
    weights.write_bytes(b"broken")
    (tmp_path / "run/best.json").unlink()
    started = events_of(recipe, site)[0]
    assert [damage.folder.name for damage in started.damaged] == ["step-000009"] and started.step == 6
    assert sha256(weights) == expected


def test_a_best_checkpoint_that_is_damaged_gives_way_to_the_next_best(recipe_file, site, tmp_path):
    run = Run(tmp_path / "run")
    recipe = loaded(recipe_file, run.folder, "train.keep_last=9", "train.eval_every=3")
    events_of(recipe, site)
    best = run.best().step
    weights = run.checkpoints / f"step-{best:06d}/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    again = events_of(recipe, site)
    assert [damage.folder for damage in again[0].damaged] == [weights.parent]
    scores = {
        step: json.loads((run.checkpoints / f"step-{step:06d}/progress.json").read_text())["scores"]["dev.wer"]
        for step in {3, 6, 9, 12} - ({best} - {12})
    }
    assert again[-1].best_step == run.best().step == min(scores, key=lambda step: (scores[step], step))


def test_a_best_checkpoint_that_is_gone_is_made_again(recipe_file, site, tmp_path):
    """No step is saved for another reason, so what is as good as the lost one must be saved."""
    recipe = loaded(recipe_file, tmp_path / "run", "train.save_every=100", "train.eval_every=5", "train.patience=5")
    events_of(recipe, site)
    best = Run(tmp_path / "run").best()
    shutil.rmtree(tmp_path / "run/checkpoints")
    again = events_of(recipe, site)
    assert again[-1].best_step == best.step and Run(tmp_path / "run").best() == best


def test_a_run_whose_best_is_damaged_is_evaluated_only_when_it_has_another(recipe_file, site, tmp_path):
    recipe, run = loaded(recipe_file, tmp_path / "run", "train.steps=6", "data.test=[]"), Run(tmp_path / "run")
    events_of(recipe, site)
    (run.checkpoints / f"step-{run.best().step:06d}/model.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelError, match=r"is damaged: .*attune train .*run"):
        open_pretrained(run.folder)
    events_of(recipe, site)
    open_pretrained(run.folder)
    (run.folder / "best.json").write_text('{"metric": "dev.wer", "value": 20.0, "step": "6"}')
    with pytest.raises(ModelError, match=r"best.json is damaged, .*attune train .*run"):  # and not the newest instead
        open_pretrained(run.folder)
    events_of(recipe, site)
    open_pretrained(run.folder)


def test_training_starts_from_the_weights_of_a_run_and_keeps_its_vocabulary(finished, recipe_file, site, tmp_path):
    _, run, _ = finished
    recipe = loaded(recipe_file, tmp_path / "run", f"model.weights={run.folder}", "train.steps=3", "data.test=[]")
    started = events_of(recipe, site)[0]
    assert started.new_tensors == ()
    assert (tmp_path / "run/task/characters.json").read_text() == (run.task / "characters.json").read_text()


def test_another_vocabulary_never_inherits_output_rows(finished, recipe_file, site, tmp_path):
    _, run, _ = finished
    overrides = ["task.tokens=bpe", "task.vocabulary=20", "train.steps=3", "data.test=[]"]
    started = events_of(loaded(recipe_file, tmp_path / "run", f"model.weights={run.model}", *overrides), site)[0]
    assert started.new_tensors == ("head.output.bias", "head.output.weight")


def test_a_model_of_another_task_gives_its_encoder_and_the_head_is_new(finished, recipe_file, site, tmp_path):
    _, run, _ = finished
    folder, manifest, recipe = recipe_file.parent / "train", tmp_path / "train.jsonl", tmp_path / "classify.yaml"
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        row |= {"audio": str(folder / row["audio"]), "labels": {"parity": str(number % 2)}}
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe.write_text(
        f"run: {tmp_path}/run\nseed: 17\ndata: {{train: [{manifest}]}}\ntask: {{name: classify, label: parity}}\n"
        f"model: {{family: ssl, weights: {run.model}}}\nbatches: {{micro_seconds: 3}}\n"
        "optimizer: {lr: 0.01}\ntrain: {steps: 1}\n"
    )
    new = events_of(recipes.load(recipe, []).recipe, site)[0].new_tensors
    assert new and all(name.startswith("head.") for name in new)


def test_weights_that_do_not_fit_are_named(finished, recipe_file, site, tmp_path):
    _, run, _ = finished
    recipe = loaded(recipe_file, tmp_path / "run", f"model.weights={run.model}", "task.head.width=16")
    with pytest.raises(ModelError, match="does not fit this model"):
        events_of(recipe, site)


def test_a_bad_row_fails_the_run_or_is_dropped_as_the_recipe_says(recipe_file, site, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(recipe_file.parent / "train", folder)
    broken = sorted((folder / "audio").iterdir())[2]
    broken.write_bytes(broken.read_bytes()[:2000])
    overrides = [f"data.train=[{folder}/manifest.jsonl]", "train.steps=2", "train.warmup=0", "data.test=[]", EPOCH]
    with pytest.raises(DataError, match=r"manifest\.jsonl:3: .*00002\.wav"):
        events_of(loaded(recipe_file, tmp_path / "fail", *overrides), site)
    events = events_of(loaded(recipe_file, tmp_path / "drop", *overrides, "data.bad_rows=drop"), site)
    dropped = [reason for event in events if isinstance(event, Stepped) for reason in event.step.dropped]
    assert dropped and "00002.wav" in dropped[0]


def test_a_bad_row_of_a_step_that_is_never_taken_does_not_stop_the_run(recipe_file, site, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(recipe_file.parent / "train", folder)
    overrides = [f"data.train=[{folder}/manifest.jsonl]", "train.steps=2", "train.warmup=0", "data.test=[]"]
    small = ["batches.micro_seconds=null", "batches.micro_utterances=2", "batches.micros_per_step=2"]
    recipe = loaded(recipe_file, tmp_path / "run", *overrides, *small)
    corpus = open_split(recipe, "train", tmp_path / "index", site, World.alone())
    plan = planner(recipe, corpus, training_rows(recipe, corpus))(0)
    first_unused = corpus[int(plan.micro(2, 0)[0])].audio
    first_unused.write_bytes(first_unused.read_bytes()[:2000])
    assert plan.steps > 2 and isinstance(events_of(recipe, site)[-1], Finished)


def test_a_row_without_text_is_dropped_when_the_recipe_says_so(recipe_file, site, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(recipe_file.parent / "train", folder)
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
    del rows[4]["text"]
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    overrides = [f"data.train=[{folder}/manifest.jsonl]", "train.steps=2", "train.warmup=0", "data.test=[]", EPOCH]
    with pytest.raises(DataError, match=r"manifest\.jsonl:5: .* has no text"):
        events_of(loaded(recipe_file, tmp_path / "fail", *overrides), site)
    events = events_of(loaded(recipe_file, tmp_path / "drop", *overrides, "data.bad_rows=drop"), site)
    assert any(isinstance(event, Stepped) and event.step.dropped for event in events)


def test_a_limit_that_leaves_nothing_to_train_on_is_told(recipe_file, site, tmp_path):
    with pytest.raises(DataError, match=r"All 24 training utterances are left out: 24 are longer"):
        events_of(loaded(recipe_file, tmp_path / "run", "data.max_seconds=0.2"), site)


def test_what_only_the_end_would_find_is_found_at_the_start_and_may_be_corrected(recipe_file, site, tmp_path):
    (tmp_path / "test.jsonl").write_text('{"id": "a"}\n')
    for mistake, error, told in (
        ("train.keep_best=dev.wre", ConfigError, r"train\.keep_best: .*dev\.wre.*dev\.wer"),
        (f"data.test=[{tmp_path / 'test.jsonl'}]", DataError, r"test\.jsonl:1"),
    ):
        with pytest.raises(error, match=told):
            events_of(loaded(recipe_file, tmp_path / "run", mistake), site)
    assert isinstance(events_of(loaded(recipe_file, tmp_path / "run", "train.steps=3"), site)[-1], Finished)


def test_an_export_that_fails_is_told_and_leaves_nothing(recipe_file, site, tmp_path, monkeypatch):
    recipe, run = loaded(recipe_file, tmp_path / "run", "train.steps=3", "data.test=[]"), tmp_path / "run"

    def full(*_):
        raise SafetensorError("Error while serializing: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr("attune.loading.pretrained.write_safetensors", full)
        with pytest.raises(ModelError, match=r"Cannot write .*No space left.*same command"):
            events_of(recipe, site)
    assert not list(run.glob(".model.*"))
    (run / ".model.01234567.part").mkdir()  # as a kill leaves it
    events_of(recipe, site)
    assert (run / "model/model.safetensors").is_file() and not list(run.glob(".model.*"))


def test_what_went_wrong_is_reported_where_not_even_the_status_can_be_written(recipe_file, site, tmp_path):
    recipe = loaded(recipe_file, tmp_path / "run")
    events = train(recipe, Request(["attune"]), site, World.alone())
    next(events)
    status = tmp_path / "run" / "status.json"
    status.unlink()
    status.mkdir()  # as little can be written over it as to a full disk
    with pytest.raises(TrainingError, match="what went wrong"):
        events.throw(TrainingError("what went wrong"))


def test_two_processes_do_not_train_in_one_directory(recipe_file, site, tmp_path):
    recipe = loaded(recipe_file, tmp_path / "run")
    first = train(recipe, Request(["attune"]), site, World.alone())
    next(first)
    with pytest.raises(CheckpointError, match="Another process is training"):
        events_of(recipe, site)
    first.close()


def test_what_a_killed_process_leaves_for_a_moment_is_waited_for(recipe_file, site, tmp_path):
    """Its readers have the lock too, and die a moment after it."""
    run = tmp_path / "run"
    run.mkdir()
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threading.Timer(0.5, fcntl.flock, (lock.fileno(), fcntl.LOCK_UN)).start()
        assert isinstance(events_of(loaded(recipe_file, run), site)[-1], Finished)


def test_a_fixed_sample_of_dev_is_scored_during_training_and_all_of_it_at_the_end(recipe_file, tmp_path, site):
    settings = ["train.eval_utterances=4", "train.eval_every=3", "data.test=[]"]
    events = events_of(loaded(recipe_file, tmp_path / "run", *settings), site)
    (start,) = (event for event in events if isinstance(event, Started))
    assert (len(start.dev), start.dev.total) == (4, 6)
    *during, final = [event.evaluation for event in events if isinstance(event, Evaluated)]
    assert len(during) == 4
    assert len({tuple(each.id for each in evaluation.predictions) for evaluation in during}) == 1
    assert during[0].title == "dev (4 of 6 utterances, chosen by the seed)" and during[0].as_json()["sample_of"] == 6
    assert len(final.predictions) == 6 and final.title == "dev"
    scores = json.loads((tmp_path / "run/scores.json").read_text())["dev"]
    assert scores["counts"]["num_scored_sents"] == 6 and "sample_of" not in scores
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    told = [(line["utterances"], line.get("sample_of")) for line in lines if line["event"] == "scores"]
    assert told == [(4, 6)] * 4 + [(6, None)]


def test_two_ranks_score_the_same_sample(recipe_file, tmp_path, site):
    def sampled(world):
        settings = ["train.eval_utterances=3", "train.steps=3", "train.eval_every=3", "data.test=[]"]
        recipe = loaded(recipe_file, tmp_path / f"{world.size}", *settings)
        events = list(train(recipe, Request(["attune", "train"]), site, world))
        first = next(event for event in events if isinstance(event, Evaluated))
        return [(each.id, each.value) for each in first.evaluation.predictions]

    (alone,) = run_ranks(1, sampled)
    assert run_ranks(2, sampled) == [alone, alone] and len(alone) == 3

"""From a folder of others through training and evaluation to a folder for others."""

import json

import pytest
import torch

import attune
from attune import recipe as recipes
from attune.cli import main
from attune.errors import ConfigError, DataError
from attune.site import this_site
from attune.stages.check import check_recipe
from attune.stages.eval_target import open_eval_target

from tiny import write_recipe
from tiny_whisper import MULTILINGUAL, write_whisper

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/run
seed: 17
data: {{train: [{train}], dev: [{dev}], test: [{dev}]}}
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {folder}/model, window: trimmed}}
batches: {{micro_utterances: 4, micros_per_step: 2}}
optimizer: {{lr: 0.003}}
train: {{steps: 4, warmup: 1, eval_every: 4, save_every: 2, log_every: 1}}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder / "model", MULTILINGUAL)
    return write_recipe(folder, utterances=8, text=RECIPE)


@pytest.fixture(scope="module")
def run(recipe):
    return attune.train(recipe)


@pytest.fixture(scope="module")
def full_run(recipe):
    return attune.train(recipe, run=f"{recipe.parent}/full", model={"window": "full"})


def evaluate(source, out, *overrides):
    status = main(["evaluate", str(source), "--on", "dev", "--out", str(out), *overrides])
    assert status in (0, None)
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_trains_and_keeps_no_vocabulary_of_the_task(run):
    assert not any((run.folder / "task").iterdir())
    assert {"config.json", "tokenizer.json"} <= {path.name for path in (run.model / "assets").iterdir()}
    losses = [
        json.loads(line)["loss"] for line in (run.folder / "log.jsonl").read_text().splitlines() if "loss" in line
    ]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("batch", [1, 3])
def test_the_window_of_training_is_the_window_of_evaluation(run, batch):
    expected = [(each.id, each.value) for each in attune.evaluate(run.folder, on="dev").predictions]
    found = attune.evaluate(run.model, on="dev", batch=batch).predictions
    assert [(each.id, each.value) for each in found] == expected


def test_weights_are_not_evaluated_in_another_window_by_mistake(recipe, run):
    named = [f"model.weights={run.model}", "model.window=full"]
    with pytest.raises(ConfigError, match=r"trained with model.window=trimmed \(the recipe has full\)"):
        open_eval_target(str(recipe), named, this_site())
    assert (
        open_eval_target(str(run.folder), ["model.window=full"], this_site()).pretrained.recipe.model.config.window
        == "full"
    )


def test_others_weights_are_evaluated_as_they_are(recipe, tmp_path):
    with pytest.raises(ConfigError, match="trained with model.window=full"):
        open_eval_target(str(recipe), [], this_site())
    predictions = evaluate(recipe, tmp_path / "zero.jsonl", "model.window=full")
    assert len(predictions) == 6
    assert all(each["value"] is not None for each in predictions)


def test_a_run_goes_on_from_a_model_of_attunes(recipe, run):
    again = attune.train(recipe, run=f"{recipe.parent}/again", model={"weights": str(run.model)}, train={"steps": 2})
    assert again.model.is_dir()


def test_a_loaded_model_transcribes_arrays(run):
    model = attune.load(run.model, device="cpu")
    (first, *_) = sorted((run.folder.parent / "dev/audio").iterdir())
    dev = attune.evaluate(run.folder, on="dev").predictions[0]
    assert model.transcribe(first) == model.transcribe([attune.load_audio(first)])[0] == dev.value
    assert model.transcribe(torch.zeros(31 * 16_000).numpy()) == ""  # longer than a window, and nothing said


def test_check_lists_what_is_too_long_for_the_decoder(recipe, tmp_path):
    rows = [json.loads(line) for line in (recipe.parent / "train/manifest.jsonl").read_text().splitlines()]
    for row in rows:
        row["audio"] = str(recipe.parent / "train" / row["audio"])
    rows[0]["text"] = "x" * 50
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = recipes.load(recipe, [f"data.train=[{tmp_path}/long.jsonl]"]).recipe
    looking = check_recipe(loaded, False, this_site())
    with pytest.raises(StopIteration) as end:
        while True:
            next(looking)
    found = end.value.value
    (problem,) = found.splits[0].bad_targets
    assert "has 55 tokens; Whisper takes 48" in problem.reason
    assert not found.can_run
    assert found.example.reads == found.example.reference


def test_a_multilingual_model_without_a_language_is_not_trained_and_detects_it_to_decode(recipe, tmp_path):
    nowhere = {"run": str(tmp_path / "run"), "task": {"language": None}}
    with pytest.raises(DataError, match="Unknown language. Add `language` to the row"):
        attune.train(recipe, **nowhere)
    detected = evaluate(recipe, tmp_path / "detected.jsonl", "task.language=null", "model.window=full")
    alone = evaluate(recipe, tmp_path / "alone.jsonl", "task.language=null", "model.window=full", "--batch=1")
    assert [each["value"] for each in alone] == [each["value"] for each in detected]
    told = evaluate(recipe, tmp_path / "told.jsonl", "task.language=th", "model.window=full")
    assert [each["score"] for each in told] != [each["score"] for each in detected]


def test_transformers_loads_the_export_and_says_the_same(full_run):
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperTokenizer

    theirs = WhisperForConditionalGeneration.from_pretrained(full_run.model)
    config = theirs.generation_config
    assert (theirs.dtype, config.language, config.task) == (torch.float32, "en", "transcribe")
    config.suppress_tokens = [*config.suppress_tokens, *range(268, MULTILINGUAL)]  # times, and numbers without a token
    tokenizer = WhisperTokenizer.from_pretrained(full_run.model)
    extractor = WhisperFeatureExtractor.from_pretrained(full_run.model)
    audio = [attune.load_audio(path) for path in sorted((full_run.folder.parent / "dev/audio").iterdir())]
    found = theirs.generate(extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features)
    texts = tokenizer.batch_decode(found, skip_special_tokens=True)
    ours = [each.value for each in attune.evaluate(full_run.folder, on="dev").predictions]
    # A model that has learned nothing yet does not end; attune stops it after what the audio can hold.
    whole = [text.rstrip("\N{REPLACEMENT CHARACTER}") for text in ours]
    assert [text.strip()[: len(part)] for text, part in zip(texts, whole, strict=True)] == whole
    assert min(map(len, whole)) > 10


def test_a_folder_of_others_becomes_a_model_that_says_what_a_recipe_with_it_says(recipe, tmp_path, capsys):
    theirs, own, dev = recipe.parent / "model", tmp_path / "own", recipe.parent / "dev/manifest.jsonl"
    assert main(["import", str(theirs), "--to", str(own)]) == 0
    words = ["task.normalizer=none", "task.language=null", "model.window=full"]
    expected = evaluate(recipe, tmp_path / "by-recipe.jsonl", *words)
    assert main(["evaluate", str(own), "--on", str(dev), "--out", str(tmp_path / "by-model.jsonl")]) == 0
    found = [json.loads(line) for line in (tmp_path / "by-model.jsonl").read_text().splitlines()]
    assert [row["value"] for row in found] == [row["value"] for row in expected]
    assert main(["import", str(dev), "--to", str(tmp_path / "no")]) == 2
    assert "unknown format" in capsys.readouterr().err and not (tmp_path / "no").exists()

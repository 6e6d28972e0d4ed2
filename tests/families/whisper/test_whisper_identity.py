"""What is said of an utterance depends on it alone: not on the batch, the ranks or the neighbours' lengths."""

import json
from dataclasses import replace
from itertools import product

import pytest

from attune.report.predictions import write_predictions
from attune.site import Site
from attune.sources import Cache
from attune.stages.eval_target import evaluate_target, open_eval_target
from attune.testing import make_corpus
from attune.testing.ranks import run_ranks

from tiny_whisper import real, real_data, write_whisper

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/run
data: {{train: [{manifest}], dev: [{manifest}]}}
task: {{name: transcribe, language: en, normalizer: basic}}
model: {{family: whisper, weights: {weights}}}
batches: {{micro_seconds: 40}}
optimizer: {{lr: 0.003}}
train: {{steps: 1}}
"""
WINDOWS = pytest.mark.parametrize("window", ["full", "trimmed"])
DYNAMIC = None  # as much audio as a micro-batch of training holds


def predictions(world, subject, batch, folder):
    """The file of predictions that an evaluation leaves."""
    stage = evaluate_target(subject, "dev", batch, Site(Cache(folder / "cache"), workers=0), world)
    while True:
        try:
            next(stage)
        except StopIteration as end:
            out = folder / f"{world.rank}.jsonl"
            write_predictions(out, end.value.predictions)
            return out.read_bytes()


def in_window(subject, window):
    """Others' weights are not trimmed by mistake; here it is meant."""
    recipe = subject.pretrained.recipe
    model = replace(recipe.model, config=replace(recipe.model.config, window=window))
    return replace(subject, pretrained=replace(subject.pretrained, recipe=replace(recipe, model=model)))


def files(weights, window, manifest, folder, ways):
    """The predictions of every number of ranks and size of a batch."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=folder, manifest=manifest, weights=weights))
    subject = in_window(open_eval_target(str(recipe), [], Site(Cache(folder / "cache"), workers=0)), window)
    for ranks, batch in ways:
        yield from run_ranks(ranks, predictions, subject, batch, folder)


@WINDOWS
def test_predictions_are_the_same_file_at_any_batch_on_any_ranks(tmp_path, window):
    weights = write_whisper(tmp_path / "model")
    manifest = make_corpus(tmp_path / "corpus", utterances=17)
    found = set(files(weights, window, manifest, tmp_path, product((1, 2), (1, 8, 32, DYNAMIC))))
    (only,) = found
    texts = [json.loads(line)["value"] for line in only.decode().splitlines()]
    assert len(texts) == 17 and len(set(texts)) > 5  # what it says depends on what it hears


@pytest.mark.timeout(1200)
@WINDOWS
def test_so_they_are_with_real_weights_on_real_speech(tmp_path, window):
    data = real_data("an4")
    rows = [json.loads(line) for line in (data / "dev.jsonl").read_text().splitlines()[::32]]
    rows = [{**row, "audio": str(data / row["audio"])} for row in rows]
    manifest = tmp_path / "dev.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {
        tuple((row["id"], row["value"]) for row in map(json.loads, file.decode().splitlines()))
        for file in files(real("whisper-tiny"), window, manifest, tmp_path, ((1, 1), (2, DYNAMIC)))
    }
    (only,) = found
    assert len(only) == len(rows) == 4

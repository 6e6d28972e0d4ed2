"""Rows that are longer than Whisper hears at once, or that say more than it has room for."""

import json

import numpy as np
import pytest
import soundfile

import attune
from attune import recipe as recipes
from attune.audio.vad import vad_chunks
from attune.corpora import ChunkedCorpus, open_corpus
from attune.errors import ConfigError, TooLong
from attune.families.whisper import FAMILY
from attune.loading.data import training_reader
from attune.loading.pretrained import build_model
from attune.site import Site
from attune.sources import Cache
from attune.stages.check import check_recipe
from attune.stages.eval_target import evaluate_target, open_eval_target
from attune.testing import make_corpus
from attune.testing.data import speak
from attune.testing.ranks import run_ranks

from tiny_whisper import write_whisper

pytestmark = pytest.mark.recipe

RECIPE = """\
run: {folder}/run
data: {{train: [{manifest}], dev: [{manifest}], max_seconds: 60}}
task: {{name: transcribe, language: en}}
model: {{family: whisper, weights: {folder}/model}}
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.003}}
train: {{steps: 1}}
"""
WORDS = ("zero one two", "three four five six", "seven eight nine", "one three five")


def finished(stage):
    while True:
        try:
            next(stage)
        except StopIteration as end:
            return end.value


@pytest.fixture(scope="module")
def long_audio():
    """45 s of words with pauses between them."""
    said = [np.pad(speak(WORDS[number % 4], seed=number), (0, 16_000)) for number in range(40)]
    return np.concatenate(said)[: 45 * 16_000]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, long_audio):
    """A corpus with three short rows, a long one, and one that is long and silent."""
    folder = tmp_path_factory.mktemp("long")
    write_whisper(folder / "model")
    manifest = make_corpus(folder / "corpus", utterances=3)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    for name, samples in (("long", long_audio), ("silent", np.zeros(31 * 16_000, np.float32))):
        soundfile.write(folder / f"corpus/audio/{name}.wav", samples, 16_000)
        rows.append({"id": name, "audio": f"audio/{name}.wav", "text": "x", "seconds": len(samples) / 16_000})
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder, manifest=manifest))
    return folder


def evaluated(folder, *overrides, ranks=1, batch=None):
    site = Site(Cache(folder / "cache"), workers=0)
    subject = open_eval_target(str(folder / "recipe.yaml"), overrides, site)
    return run_ranks(ranks, lambda world: finished(evaluate_target(subject, "dev", batch, site, world)))[0]


def checked(folder, *overrides):
    recipe = recipes.load(folder / "recipe.yaml", overrides).recipe
    return finished(check_recipe(recipe, False, Site(Cache(folder / "cache"), workers=1)))


def test_a_long_row_is_decoded_in_pieces_and_scored_whole(folder, long_audio):
    found = evaluated(folder, "data.long_rows=split")
    assert [each.id for each in found.predictions] == ["00000", "00001", "00002", "long", "silent"]
    spans = vad_chunks(long_audio, 30.0)
    model = attune.load(_exported(folder), device="cpu")
    pieces = [long_audio[round(span.start * 16_000) : round(span.end * 16_000)] for span in spans]
    assert len(pieces) > 1
    assert found.predictions[3].value == " ".join(model.transcribe(pieces))
    assert found.predictions[4].value == "" and found.absent == 0
    assert found.scores.counts["num_scored_sents"] == 5
    rows = map(json.loads, (folder / "corpus/manifest.jsonl").read_text().splitlines())
    assert found.audio_seconds == pytest.approx(sum(row["seconds"] for row in rows))  # pauses are audio too


def _exported(folder):
    """The weights as a model of attune's."""
    return attune.train(folder / "recipe.yaml", data={"long_rows": "split", "dev": []}, optimizer={"lr": 1e-30}).model


@pytest.mark.parametrize(("ranks", "batch"), [(1, 1), (2, 1), (2, 8)])
def test_neither_batch_nor_ranks_show_in_the_pieces(folder, ranks, batch):
    alone, other = (
        evaluated(folder, "data.long_rows=split"),
        evaluated(folder, "data.long_rows=split", ranks=ranks, batch=batch),
    )
    assert [each.value for each in other.predictions] == [each.value for each in alone.predictions]
    assert sum(rank["num_scored_sents"] for rank in other.rank_counts) == 5


def test_a_long_row_fails_the_evaluation_or_is_absent_from_it_as_the_recipe_says(folder):
    with pytest.raises(TooLong, match="is 45.0 s long; Whisper takes 30 s at a time"):
        evaluated(folder)
    assert evaluated(folder, "data.long_rows=drop").absent == 2
    with pytest.raises(ConfigError, match="long_rows: fail contradicts bad_rows"):
        evaluated(folder, "data.long_rows=fail", "data.bad_rows=drop")


def test_training_stops_at_a_long_row_unless_the_recipe_leaves_it_out_by_choice(folder, tmp_path):
    text = (folder / "recipe.yaml").read_text().replace(", max_seconds: 60", ", long_rows: fail")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text.replace("micro_utterances: 4", "micro_utterances: 8"))
    with pytest.raises(TooLong, match=r"utterance '\w+' is \d+.0 s long; Whisper takes 30 s at a time"):
        attune.train(recipe, run=str(tmp_path / "fails"), data={"dev": []})
    short = {"max_seconds": 30, "dev": []}
    assert attune.train(recipe, run=str(tmp_path / "by_choice"), data=short).model.is_dir()
    found = finished(check_recipe(recipes.load(recipe).recipe, False, Site(Cache(tmp_path), workers=1)))
    assert [problem.id for problem in found.splits[0].bad_targets] == ["long", "silent"] and not found.can_run


def test_check_lists_them_and_says_whether_they_stop_the_run(folder):
    for policy, expected in (("fail", 0), ("drop", 2), ("split", 2)):
        found = checked(folder, f"data.long_rows={policy}")
        assert [len(split.long_rows) for split in found.splits] == [expected] * 2
        assert [len(split.bad_targets) for split in found.splits] == [2 - expected] * 2
        assert found.can_run == (policy != "fail")  # training runs without a prediction for them, and says so
    assert [problem.id for problem in found.splits[1].long_rows] == ["long", "silent"]


def test_the_verb_tells_what_becomes_of_them(folder, capsys):
    from attune.cli import main

    assert main(["check", str(folder / "recipe.yaml"), "data.long_rows=split", "--no-audio"]) == 0
    out = capsys.readouterr().out
    assert "train: 2 too long for the model, skipped in training" in out
    assert "dev: 2 too long for the model, decoded in pieces split at pauses" in out
    assert main(["check", str(folder / "recipe.yaml"), "data.long_rows=drop", "--no-audio"]) == 0
    assert "dev: 2 too long for the model, without a prediction" in capsys.readouterr().out
    assert main(["check", str(folder / "recipe.yaml"), "data.long_rows=drop", "data.max_seconds=30", "--no-audio"]) == 0
    assert "  too long: " in capsys.readouterr().out


def test_a_text_without_room_is_left_out_of_training_like_a_long_recording(folder, tmp_path):
    manifest = make_corpus(tmp_path / "corpus", utterances=3)
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    rows[1]["text"] = "x" * 50
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    overrides = {"run": str(tmp_path / "run"), "data": {"train": [str(manifest)], "dev": []}}
    with pytest.raises(TooLong, match="has 53 tokens; Whisper takes 48"):
        attune.train(folder / "recipe.yaml", **overrides)
    overrides["data"]["long_rows"] = "drop"
    overrides["run"] = str(tmp_path / "other")
    run = attune.train(folder / "recipe.yaml", **overrides)
    dropped = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines() if "dropped" in line]
    assert len(dropped) == 1 and "has 53 tokens" in dropped[0]["reason"]


def test_no_speed_makes_a_row_longer_than_the_window(folder, tmp_path):
    for name, seconds in (("short", 20.0), ("just", 29.0), ("rounded", 30.01)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(round(seconds * 16_000), np.float32), 16_000)
    rows = [{"id": name, "audio": f"{name}.wav", "text": "x"} for name in ("short", "just", "rounded")]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = recipes.load(folder / "recipe.yaml", ["augment.speeds=[0.9]"]).recipe
    FAMILY.importer.read(recipe.model.config, folder / "model", tmp_path)
    corpus = open_corpus("train", [tmp_path / "manifest.jsonl"], tmp_path)
    reader = training_reader(recipe, corpus, build_model(recipe, tmp_path, tmp_path), Site(Cache(tmp_path), workers=0))
    batch, _ = reader.read(np.arange(3))
    assert (batch.lengths / 16_000).tolist() == pytest.approx([20 / 0.9, 29.0, 30.01], abs=1e-3)


def test_audio_that_can_no_longer_be_read_stays_whole(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(40 * 16_000, np.float32), 16_000)
    (tmp_path / "manifest.jsonl").write_text(json.dumps({"id": "a", "audio": "a.wav", "text": "x"}))
    corpus = open_corpus("dev", [tmp_path / "manifest.jsonl"], tmp_path)
    (tmp_path / "a.wav").write_text("not audio any more")
    pieces = ChunkedCorpus(corpus, 30.0)
    assert len(pieces) == 1 and pieces[0].seconds == 40


def test_pieces_lie_in_order_in_their_row(folder, tmp_path):
    manifest = folder / "corpus/manifest.jsonl"
    whole = open_corpus("dev", [manifest], tmp_path)
    pieces = ChunkedCorpus(whole, 30.0)
    of_long = [pieces[index] for index, owner in enumerate(pieces.owners) if owner == 3]
    assert pieces.owners[:3] == [0, 1, 2] and 4 not in pieces.owners and len(pieces) == 3 + len(of_long)
    assert all(each.seconds <= 30.0 for each in of_long)
    ends = [each.start + each.seconds for each in of_long]
    assert all(end <= each.start for end, each in zip(ends, of_long[1:], strict=False))
    assert pieces.seconds.tolist() == [pieces[index].seconds for index in range(len(pieces))]

"""Several utterances in one window, told apart by their times."""

import json
from dataclasses import replace

import numpy as np
import pytest

import attune
from attune.batches.load import Reader
from attune.corpora import open_manifest
from attune.errors import ConfigError
from attune.families.whisper import FAMILY, WhisperConfig
from attune.families.whisper.labels import DecoderPrompt, WhisperVocabulary, sequence
from attune.families.whisper.packing import Packer
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.testing import make_corpus
from attune.types import LoadedRow

from tiny import write_recipe
from tiny_whisper import MULTILINGUAL, write_tokenizer, write_whisper

RECIPE = """\
run: {folder}/run
data: {{train: [{train}], dev: [{dev}]}}
task: {{name: transcribe, language: en}}
model: {{family: whisper, weights: {folder}/model, timestamps: true, pack: true}}
batches: {{micro_utterances: 4}}
optimizer: {{lr: 0.003}}
train: {{steps: 3, eval_every: 3, log_every: 1}}
"""


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return WhisperVocabulary(
        write_tokenizer(tmp_path_factory.mktemp("tokens") / "tokenizer.json"), is_multilingual=True
    )


def row(vocabulary, name, seconds, text="ab", positions=448, **told):
    target = sequence(
        vocabulary, DecoderPrompt(**{"language": "en", "has_timestamps": True, **told}), positions, text, seconds
    )
    return LoadedRow(name, np.full(round(seconds * 16_000), ord(name), np.float32), target)


def test_rows_stand_in_a_window_one_after_another_at_their_times(vocabulary):
    rows = [row(vocabulary, "a", 1.0, "ab"), row(vocabulary, "b", 2.51, "cd"), row(vocabulary, "c", 3.0, "ef")]
    (packed,) = Packer(vocabulary, 448)(rows)
    text = "<|0.00|>ab<|1.00|><|1.00|>cd<|3.50|><|3.52|>ef<|6.52|>"
    expected = sequence(vocabulary, DecoderPrompt("en", has_timestamps=True), 448, text, 6.5)
    assert packed.target == expected and packed.id == "a+b+c"
    later = [replace(each, turn=2) for each in rows]
    assert Packer(vocabulary, 448)(later)[0].turn == 2  # its masks are others than those of the first turn
    starts = [int(np.flatnonzero(packed.audio == ord(name))[0]) for name in "abc"]
    assert starts == [0, 16_000, 16_000 + 40_320]  # the third begins at a time that has a token
    assert len(packed.audio) == starts[2] + 48_000


def test_a_window_is_never_longer_than_30_s_nor_its_text_than_the_decoder(vocabulary):
    tens = [row(vocabulary, name, 10.0) for name in "abcd"]
    assert [each.id for each in Packer(vocabulary, 448)(tens)] == ["a+b+c", "d"]
    assert max(Packer(vocabulary, 448)(tens)[0].target) == vocabulary.timestamp(30.0)
    rounded_up = LoadedRow("z", tens[0].audio, row(vocabulary, "z", 10.02).target)
    assert max(Packer(vocabulary, 448)([*tens[:2], rounded_up])[0].target) == vocabulary.timestamp(30.0)
    room = len(Packer(vocabulary, 448)(tens[:2])[0].target)
    assert [each.id for each in Packer(vocabulary, room)(tens)] == ["a+b", "c+d"]


def test_rows_that_are_told_different_things_do_not_share_a_window(vocabulary):
    rows = [
        row(vocabulary, "a", 1.0),
        row(vocabulary, "b", 1.0, language="be"),
        row(vocabulary, "c", 1.0, previous_text="x"),
    ]
    assert [each.id for each in Packer(vocabulary, 448)(rows)] == ["a", "b", "c"]


def test_a_row_without_words_is_silence_in_a_window_and_does_not_begin_one_of_others(vocabulary):
    silent, words = row(vocabulary, "s", 2.0, ""), row(vocabulary, "a", 1.0, "ab")
    told = DecoderPrompt("en", has_timestamps=True)
    (packed,) = Packer(vocabulary, 448)([words, silent, words])
    assert packed.target == sequence(vocabulary, told, 448, "<|0.00|>ab<|1.00|><|3.00|>ab<|4.00|>", 4.0)
    (ended,) = Packer(vocabulary, 448)([words, silent])
    assert ended.target == sequence(vocabulary, told, 448, "<|0.00|>ab<|1.00|>", 3.0) and len(ended.audio) == 48_000
    (nothing,) = Packer(vocabulary, 448)([silent, silent])
    assert nothing.target == silent.target
    # A model may not say that speech begins later than after a second.
    assert [each.id for each in Packer(vocabulary, 448)([silent, words])] == ["s", "a"]


def test_every_token_but_the_ends_is_learned_as_it_is_one_by_one(tmp_path):
    folder = write_whisper(tmp_path / "model", MULTILINGUAL, max_target_positions=448)
    corpus = list(open_manifest(make_corpus(tmp_path / "corpus", utterances=8), tmp_path / "index"))
    config = WhisperConfig(weights=str(folder), timestamps=True, pack=True)
    FAMILY.importer.read(config, folder, tmp_path)
    built = FAMILY.build(config, Transcribe(TranscribeConfig(language="en"), tmp_path), tmp_path)
    alone, _ = Reader(corpus, built.codec.target).read(np.arange(8))
    packed, _ = Reader(corpus, built.codec.target, pack=built.pack).read(np.arange(8))
    assert len(packed.ids) < 8 and "+".join(packed.ids) == "+".join(alone.ids)
    counts = [int(built.model.loss(each).count) for each in (alone, packed)]
    told = 2  # language and task are said once in a window
    assert counts[0] - counts[1] == (8 - len(packed.ids)) * (told + 1)


@pytest.mark.recipe
def test_a_recipe_trains_on_packed_windows_and_scores_one_by_one(tmp_path):
    write_whisper(tmp_path / "model", MULTILINGUAL, max_target_positions=448)
    recipe = write_recipe(tmp_path, utterances=8, text=RECIPE)
    run = attune.train(recipe)
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "step"]
    assert losses[-1] < losses[0]
    assert attune.evaluate(run.folder, on="dev").scores.counts["num_scored_sents"] == 6
    with pytest.raises(ConfigError, match="`pack` separates utterances by their timestamps"):
        attune.train(recipe, model={"timestamps": False})

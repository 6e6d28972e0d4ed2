"""NeMo rows without an offset: what is heard is what NeMo hears."""

import json

import pytest

from attune.audio.decode import read_utterance
from attune.corpora import CorpusPaths, open_manifest, prepare_split
from attune.corpora.nemo import CORPUS

import miniatures


def prepare(folder, *rows):
    """The manifest's rows, and why others were left out."""
    miniatures.text(folder / "train.json", *(json.dumps({"text": "hi"} | row) for row in rows))
    to = folder / "to"
    steps = prepare_split("train", CORPUS.read(CorpusPaths(str(folder), to), CORPUS.options())["train"], to, jobs=1)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return list(open_manifest(to / "train.jsonl", to / "index")), dict(end.value.left_out)


def test_a_duration_without_an_offset_is_a_part_from_the_beginning(tmp_path):
    miniatures.audio(tmp_path / "talk.wav", 3.0)
    (row,), _ = prepare(tmp_path, {"audio_filepath": "talk.wav", "duration": 0.5})
    assert (row.id, row.start, row.seconds) == ("talk.wav", 0.0, 0.5)
    assert len(read_utterance(row)) == 8000


@pytest.mark.parametrize("duration", [1.2, 1.23, 1.23456789, 1.3, 2, 90])
def test_a_duration_that_is_roughly_the_length_or_more_is_the_whole_file(tmp_path, duration):
    miniatures.audio(tmp_path / "a.wav", 1.2345)
    (row,), _ = prepare(tmp_path, {"audio_filepath": "a.wav", "duration": duration})
    assert (row.start, row.seconds) == (None, 1.2345)
    assert len(read_utterance(row)) == 19752


def test_a_file_that_is_missing_or_no_audio_is_left_out(tmp_path):
    miniatures.audio(tmp_path / "a.wav")
    miniatures.text(tmp_path / "no.wav", "not audio")
    rows, left_out = prepare(
        tmp_path,
        {"audio_filepath": "a.wav", "duration": 0.3},
        {"audio_filepath": "gone.wav", "duration": 1.0},
        {"audio_filepath": "no.wav", "duration": 1.0},
    )
    assert [row.id for row in rows] == ["a.wav"] and left_out.pop("missing audio file") == 1
    assert "is not audio" in next(iter(left_out))


def test_a_file_that_is_far_away_is_not_fetched_to_be_measured(tmp_path):
    (row,), _ = prepare(tmp_path, {"audio_filepath": "https://127.0.0.1:1/a.wav", "duration": 1.5})
    assert (row.start, row.seconds) == (0.0, 1.5)

"""Lhotse cuts whose times are not those of the file."""

import json

import pytest

from attune.corpora import CorpusPaths, Skipped
from attune.corpora.lhotse import CORPUS

import miniatures


def read(folder, transforms):
    recording = {"sources": [{"type": "file", "channels": [0], "source": "a.wav"}], "duration": 2.0}
    cut = {"id": "u", "type": "MonoCut", "start": 1.0, "duration": 0.5, "channel": 0}
    row = {**cut, "recording": recording | transforms, "supervisions": [{"text": "hi", "start": 0}]}
    miniatures.text(folder / "cuts.jsonl", json.dumps(row))
    (found,) = CORPUS.read(CorpusPaths(str(folder), folder / "to"), CORPUS.options())["cuts"]
    return found


def test_a_cut_of_a_transformed_recording_is_left_out(tmp_path):
    speed = {"name": "Speed", "kwargs": {"factor": 0.5}}
    found = read(tmp_path, {"transforms": [speed, {"name": "Volume", "kwargs": {"factor": 2}}]})
    assert isinstance(found, Skipped) and found.which == "u"
    assert found.reason.startswith("recording has transforms (Speed, Volume) that are not in its file")
    assert "save_audios" in found.reason


@pytest.mark.parametrize(
    "transforms",
    [{}, {"transforms": None}, {"transforms": []}, {"transforms": [{"name": "Resample", "kwargs": {}}]}],
)
def test_a_cut_of_a_recording_as_it_is_or_at_another_rate_is_a_row(tmp_path, transforms):
    found = read(tmp_path, transforms)
    assert (found.start, found.seconds) == (1.0, 0.5)


def test_custom_fields_of_the_cut_and_its_supervision_are_labels(tmp_path):
    supervision = {"text": "hi", "start": 0, "gender": "F", "custom": {"emotion": "glad", "snr": 12.5, "nested": {}}}
    recording = {"sources": [{"type": "file", "channels": [0], "source": "a.wav"}], "duration": 2.0}
    cut = {"id": "u", "duration": 2.0, "recording": recording, "supervisions": [supervision], "custom": {"dialect": 3}}
    miniatures.text(tmp_path / "cuts.jsonl", json.dumps(cut))
    (found,) = CORPUS.read(CorpusPaths(str(tmp_path), tmp_path / "to"), CORPUS.options())["cuts"]
    assert found.labels == {"gender": "F", "dialect": "3", "emotion": "glad", "snr": "12.5"}

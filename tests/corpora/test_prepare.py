"""Writing a split's manifest: what is in its place already."""

import pytest

from attune.cli import main
from attune.corpora import prepare_split
from attune.errors import DataError

import miniatures


def test_a_manifest_that_prepare_did_not_write_is_not_taken_for_one_and_not_touched(tmp_path):
    manifest = miniatures.text(tmp_path / "train.jsonl", '{"audio": "a.wav", "text": "hi"}')
    before = manifest.read_bytes()
    with pytest.raises(DataError, match=r"train\.jsonl exists and was not written by `attune prepare`.*--to"):
        list(prepare_split("train", [], tmp_path, jobs=1))
    assert manifest.read_bytes() == before


def test_a_manifest_that_would_be_written_where_it_is_read_is_refused_and_nothing_is_put_beside_it(tmp_path, capsys):
    miniatures.audio(tmp_path / "a.wav")
    miniatures.text(tmp_path / "train.jsonl", '{"audio_filepath": "a.wav", "duration": 0.3, "text": "hi"}')
    assert main(["prepare", "nemo", "--from", str(tmp_path), "--to", str(tmp_path)]) == 2
    assert "would overwrite its source" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"a.wav", "train.jsonl"}
    assert main(["prepare", "nemo", "--from", str(tmp_path), "--to", str(tmp_path / "to")]) == 0

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


@pytest.fixture
def table(tmp_path):
    """A CSV of two recordings, and how to prepare it."""
    for name in ("a", "b", "c"):
        miniatures.audio(tmp_path / f"from/{name}.wav")
    path = miniatures.text(tmp_path / "from/train.csv", "audio,text", "a.wav,one", "b.wav,two")
    command = ["prepare", "csv", "text=text", "--from", str(path), "--to", str(tmp_path / "to"), "--jobs", "1"]
    assert main(command) == 0
    return path, command


def written(tmp_path):
    return (tmp_path / "to/train.jsonl").read_text()


def test_a_source_that_has_not_changed_is_left_alone(table, capsys):
    _, command = table
    assert main(command) == 0 and "already prepared" in capsys.readouterr().out


def test_a_changed_table_is_refused_with_what_changed_and_written_again_by_force(table, tmp_path, capsys):
    path, command = table
    before = written(tmp_path)
    miniatures.text(path, "audio,text", "a.wav,one", "b.wav,three", "c.wav,four")
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "the source has changed" in error and "2 → 3 entries; 1 changed: b" in error and "--force" in error
    assert written(tmp_path) == before
    assert main([*command, "--force"]) == 0 and "three" in written(tmp_path) and "four" in written(tmp_path)
    assert main(command) == 0


def test_another_recording_under_the_same_name_is_noticed(table, tmp_path, capsys):
    path, command = table
    miniatures.audio(path.parent / "a.wav", seconds=0.7)
    assert main(command) == 2 and "other audio files" in capsys.readouterr().err


def test_a_preparation_of_which_nothing_came_does_not_refuse_its_correction(tmp_path, capsys):
    miniatures.audio(tmp_path / "from/recordings/a.wav")
    path = miniatures.text(tmp_path / "from/train.csv", "audio,text", "a.wav,one")
    command = ["prepare", "csv", "text=text", "--from", str(path), "--to", str(tmp_path / "to"), "--jobs", "1"]
    assert main(command) == 2  # the audio is in another folder
    assert main([*command, f"root={tmp_path / 'from/recordings'}"]) == 0
    assert "one" in written(tmp_path)
    assert main(command) == 2
    assert "is already prepared with other settings (root: " in capsys.readouterr().err

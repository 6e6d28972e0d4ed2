"""Writing a split's manifest: what is in its place already."""

import subprocess
import sys
from multiprocessing import active_children

import pytest

from attune.cli import main
from attune.corpora import prepare_split
from attune.corpora._rows import Row
from attune.errors import DataError, ReaderLost

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


def test_a_script_is_not_run_again_in_every_worker(table, tmp_path):
    script = tmp_path / "script.py"
    words = ["prepare", "csv", "text=text", "--from", str(table[0]), "--to", str(tmp_path / "new"), "--jobs", "2"]
    script.write_text(
        "import multiprocessing\n"
        "multiprocessing.set_start_method('forkserver', force=True)  # as from Python 3.14 on\n"
        f"from attune.cli import main\nprint('once', main({words!r}), flush=True)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.count("once 0") == 1, done.stderr


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


@pytest.mark.parametrize("name", ["corpus.json", "train.prepared.json"])
def test_a_damaged_record_of_a_preparation_is_named_and_mended_by_force(table, tmp_path, name, capsys):
    (_, command), before = table, written(tmp_path)
    for content in (b"", b"[]", b'{"rows": "2"}', b"\xff"):
        (tmp_path / "to" / name).write_bytes(content)
        assert main(command) == 2
        assert f"{name} is damaged. Prepare again with --force" in capsys.readouterr().err
        assert main([*command, "--force"]) == 0 and written(tmp_path) == before
        assert main(command) == 0


def test_a_killed_process_of_a_preparation_is_reported_in_words(tmp_path):
    def rows():
        yield from (Row(str(number), "missing.wav") for number in range(1000))
        for child in active_children():
            child.kill()
        yield from (Row(str(number), "missing.wav") for number in range(1000, 2000))

    with pytest.raises(ReaderLost, match="was killed, perhaps out of memory"):
        list(prepare_split("train", rows(), tmp_path, jobs=2))
    assert not (tmp_path / "train.jsonl").exists()


def test_where_nothing_can_be_used_the_next_step_is_named(tmp_path, capsys):
    (miniatures.audio(tmp_path / "from/a.wav").parent / "empty.wav").touch()
    miniatures.text(tmp_path / "from/empty.txt", "words")
    assert main(["prepare", "auto", "--from", str(tmp_path / "from"), "--to", str(tmp_path / "to")]) == 2
    out, err = capsys.readouterr()
    assert "  skipped 1: empty audio file\n" in out and "  skipped 1: no .txt or .lab file\n" in out
    assert "has no row that can be used. Fix what was skipped, or name the corpus" in err

"""Ordinary damage around a command is one line and an exit code, never a traceback."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attune.cli import main, show
from attune.errors import DataError
from attune.report.lines import Lines
from attune.testing import make_corpus

pytestmark = pytest.mark.recipe

ROOT = Path(__file__).parents[2]
DAC_OVERRIDE, DAC_READ_SEARCH, DROP = 1, 2, 24  # by which root may read and write everything


def drop_powers():
    for power in (DAC_OVERRIDE, DAC_READ_SEARCH) if os.geteuid() == 0 else ():
        if ctypes.CDLL(None).prctl(DROP, power) != 0:
            raise OSError("cannot drop the powers of root")


def attune(*words, stdout=subprocess.PIPE, **environment):
    """Run the command in a process of its own, as somebody whom permissions bind."""
    return subprocess.run(
        [sys.executable, "-m", "attune", *map(str, words)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        preexec_fn=drop_powers,  # no thread runs in the test that starts it
    )


def write_recipe(folder, manifest):
    text = f"""\
run: {folder}/run
data: {{train: [{manifest}], dev: [{manifest}]}}
task: {{name: transcribe, head: {{layers: 1, width: 8}}}}
model: {{family: ssl}}
batches: {{micro_seconds: 8}}
optimizer: {{lr: 0.01}}
train: {{steps: 2, eval_every: 1}}
"""
    (folder / "recipe.yaml").write_text(text)
    return folder / "recipe.yaml"


@pytest.mark.parametrize("width", [2**62, 10**13])
def test_a_model_larger_than_memory_is_a_line(width, tmp_path, capsys):
    recipe = write_recipe(tmp_path, make_corpus(tmp_path, utterances=2))
    assert main(["check", str(recipe), f"task.head.width={width}"]) == 2
    assert "does not fit into memory" in capsys.readouterr().out


def test_an_error_of_the_system_is_a_line_with_its_path(monkeypatch, capsys):
    def run(arguments):
        Path("/proc/nowhere/a b").write_text("x")

    monkeypatch.setattr(show, "run", run)
    assert main(["show", "x.yaml"]) == 1
    message = "/proc/nowhere/a b: No such file or directory. Check the path and its permissions, then run the command"
    assert capsys.readouterr().err.startswith(message)


def test_a_manifest_that_may_not_be_read_is_a_line(tmp_path):
    manifest = make_corpus(tmp_path, utterances=2)
    recipe = write_recipe(tmp_path, manifest)
    manifest.chmod(0)
    result = attune("check", recipe)
    assert result.returncode in (1, 2)
    assert result.stderr.decode() == (
        f"{manifest}: Permission denied. Check the path and its permissions, then run the command again.\n"
    )


def test_a_log_that_may_not_be_written_is_a_line(tmp_path):
    recipe = write_recipe(tmp_path, make_corpus(tmp_path, utterances=2))
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.lock").touch()
    shutil.copy(recipe, tmp_path / "run/recipe.yaml")
    (tmp_path / "run/log.jsonl").touch(0o444)
    result = attune("train", recipe, "--device", "cpu")
    assert result.returncode in (1, 2)
    assert f"{tmp_path}/run/log.jsonl: Permission denied" in result.stderr.decode()
    assert b"Traceback" not in result.stderr


def test_a_row_without_audio_is_named_and_may_be_dropped(tmp_path, capsys):
    manifest = make_corpus(tmp_path, utterances=3)
    with manifest.open("a") as file:
        file.write('{"id": "written", "text": "one"}\n')
    recipe = str(write_recipe(tmp_path, manifest))
    assert main(["train", recipe, "--device", "cpu", "--workers", "0"]) == 2
    assert "manifest.jsonl:4: utterance 'written' has no audio" in capsys.readouterr().err
    good = make_corpus(tmp_path / "good", utterances=3)
    assert main(["train", recipe, f"data.train=[{good}]", "--device", "cpu", "--workers", "0"]) == 2
    err = capsys.readouterr().err
    assert "manifest.jsonl:4: utterance 'written' has no audio. Give its row" in err and err.count("'written'") == 1
    words = ["data.bad_rows=drop", f"run={tmp_path}/other", "--device", "cpu", "--workers", "0"]
    assert main(["train", recipe, *words]) == 0


@pytest.mark.parametrize("redirect", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(redirect):
    command = f"{sys.executable} -m attune list families {redirect}"
    result = subprocess.run(
        command, shell=True, capture_output=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}
    )
    assert (result.returncode, result.stderr) == (0, b"")


def test_what_a_terminal_cannot_show_is_written_as_an_escape(tmp_path):
    (tmp_path / "é.jsonl").write_text('{"id": "a", "reference": "é", "value": "e"}\n')
    result = attune("score", tmp_path / "é.jsonl", PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert rb"\xe9.jsonl" in result.stdout


def test_results_of_files_whose_names_are_no_text_are_kept(tmp_path):
    Lines(tmp_path / "out.jsonl").add("a\udce9.wav", text="é\u2028é")
    assert Lines(tmp_path / "out.jsonl").ids == {"a\udce9.wav"}
    Lines(tmp_path / "out.jsonl").add("é.wav", text="é\u2028é")
    assert "é.wav" in (tmp_path / "out.jsonl").read_text()
    assert Lines(tmp_path / "out.jsonl").ids == {"a\udce9.wav", "é.wav"}
    (tmp_path / "out.jsonl").write_bytes(b'{"id": "\xff"}\n')
    with pytest.raises(DataError, match="is not a result"):
        Lines(tmp_path / "out.jsonl")


def test_deeply_nested_predictions_are_a_line(tmp_path, capsys):
    (tmp_path / "deep.jsonl").write_text("[" * 100_000 + "\n")
    assert main(["score", str(tmp_path / "deep.jsonl")]) == 2
    assert "line 1: not JSON" in capsys.readouterr().err


def test_a_table_with_a_header_of_another_encoding_is_named(tmp_path, capsys):
    (tmp_path / "a.csv").write_bytes("id,text,été\n1,one,x\n".encode("latin-1"))
    recipe = write_recipe(tmp_path, tmp_path / "a.csv")
    assert main(["check", str(recipe)]) == 2
    assert "The first line of " in (message := "".join(capsys.readouterr())) and "is not UTF-8 text" in message


def test_a_million_micro_batches_in_a_step_are_refused(tmp_path, capsys):
    recipe = write_recipe(tmp_path, make_corpus(tmp_path, utterances=2))
    assert main(["show", str(recipe), "batches.micros_per_step=1000000"]) == 2
    assert "batches.micros_per_step: expected at most 10000, found '1000000'" in capsys.readouterr().err

import json
from pathlib import Path

import pytest
import torch
from transformers import WhisperFeatureExtractor

import attune
from attune.cli import main
from attune.cli.leaderboard import _name, open_pipeline

from tiny_whisper import write_whisper

DEMO = Path(attune.__file__).parent / "demo"


def board(capsys, *words, code=0):
    capsys.readouterr()
    assert main(["leaderboard", *map(str, words)]) == code
    return capsys.readouterr()


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for name, first in (("one", 0), ("two", 6)):
        rows = [json.loads(line) for line in (DEMO / "test.jsonl").read_text().splitlines()[first : first + 6]]
        lines = [json.dumps({**row, "audio": str(DEMO / row["audio"])}) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_model_is_evaluated_on_many_sets(sets, tmp_path, capsys):
    given = ("--sets", f"first={sets / 'one.jsonl'}", sets / "two.jsonl", "--to", tmp_path / "b", "--device", "cpu")
    told = board(capsys, "attune://demo/model", *given, "--batch", "4").out
    assert "clock: samples in memory to text" in told
    head, _, row = (tmp_path / "b/board.md").read_text().splitlines()
    assert head == "| model | average WER | RTFx | first | two |" and row.startswith("| model | ")
    lines = [json.loads(line) for line in (tmp_path / "b/first.jsonl").read_text().splitlines()]
    assert [*lines[0]] == ["audio_filepath", "duration", "time", "text", "pred_text"]
    assert [line["audio_filepath"] for line in lines] == [f"test-00{number}" for number in range(6)]
    saved = json.loads((tmp_path / "b/board.json").read_text())
    low, high = saved["sets"]["two"]["wer"][1:]
    assert low <= saved["sets"]["two"]["wer"][0] <= high
    total = sum(each["audio_seconds"] for each in saved["sets"].values())
    spent = sum(each["seconds"] for each in saved["sets"].values())
    assert saved["rtfx"] == pytest.approx(total / spent, rel=0.01)
    mean = sum(each["compound_wer"][0] for each in saved["sets"].values()) / 2
    assert saved["average_compound_wer"] == pytest.approx(mean)
    # The predictions are attune's own, and sets that are there are not decoded again.
    assert main(["score", str(tmp_path / "b/predictions/two.jsonl"), "--normalizer", "english", "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["scores"]["wer"]["value"] == pytest.approx(saved["sets"]["two"]["wer"][0])
    again = json.loads(board(capsys, "no-such-model", *given, "--json", "--name", "model").out)
    assert again == saved
    other = board(capsys, "no-such-model", *given, code=2)
    assert "has the results of model. Name another folder" in other.err
    assert json.loads((tmp_path / "b/board.json").read_text()) == saved


@pytest.mark.parametrize("model", ["predictions:.", "predictions:../theirs/", "runs/theirs", "hf://org/theirs"])
def test_a_system_is_named_after_its_folder(model, tmp_path, monkeypatch):
    (tmp_path / "theirs").mkdir()
    monkeypatch.chdir(tmp_path / "theirs")
    assert _name(model) == "theirs"


def test_a_predictions_folder_is_a_peer(tmp_path, capsys):
    (tmp_path / "theirs").mkdir()
    rows = [
        {
            "audio_filepath": "a",
            "duration": 10.0,
            "time": 0.5,
            "text": "The white paper.",
            "pred_text": "the whitepaper",
        },
        {"audio_filepath": "b", "duration": 10.0, "time": 0.5, "text": "yes", "pred_text": "no"},
        {"audio_filepath": "c", "duration": 5.0, "time": 0.25, "text": "[noise]", "pred_text": "what"},
    ]
    (tmp_path / "theirs/x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = json.loads(board(capsys, f"predictions:{tmp_path / 'theirs'}", "--sets", "x", "--json").out)
    assert found["rtfx"] == 20 and found["sets"]["x"]["utterances"] == 2
    assert found["sets"]["x"]["compound_wer"][0] == 25 and found["sets"]["x"]["wer"][0] == 75


def test_speed_is_that_of_sets_with_a_clock(tmp_path, capsys):
    timed = {"audio_filepath": "a", "duration": 10.0, "time": 0.5, "text": "yes", "pred_text": "yes"}
    (tmp_path / "x.jsonl").write_text(json.dumps(timed) + "\n")
    (tmp_path / "y.jsonl").write_text(json.dumps({**timed, "duration": 90.0, "time": None}) + "\n")
    found = json.loads(board(capsys, f"predictions:{tmp_path}", "--sets", "x", "y", "--json").out)
    assert found["rtfx"] == found["sets"]["x"]["rtfx"] == 20 and found["clock"] == "as the files have it"
    assert "samples in memory" not in board(capsys, f"predictions:{tmp_path}", "--sets", "x").out
    (tmp_path / "x.jsonl").write_text(json.dumps({**timed, "time": float("nan")}) + "\n")
    assert "x.jsonl:1: expected" in board(capsys, f"predictions:{tmp_path}", "--sets", "x", code=2).err


def test_a_peer_with_half_precision_weights_runs_in_float32_on_a_cpu(sets, tmp_path, capsys):
    folder = write_whisper(tmp_path / "whisper")
    WhisperFeatureExtractor().save_pretrained(folder)
    assert open_pipeline(str(folder), torch.device("cpu")).model.dtype == torch.float32
    done = board(capsys, f"pipeline:{tmp_path}", "--sets", sets / "one.jsonl", code=2)
    assert "cannot make a pipeline" in done.err
    done = board(capsys, f"pipeline:{tmp_path}/none", "--sets", sets / "one.jsonl", code=2)
    assert "none: no such folder" in done.err


def test_mistakes_are_messages(sets, tmp_path, capsys):
    same = (sets / "one.jsonl", sets / "one.jsonl")
    assert "two sets have the same name" in board(capsys, "x", "--sets", *same, code=2).err
    assert "Cannot read" in board(capsys, f"predictions:{tmp_path}", "--sets", "x", code=2).err
    (tmp_path / "x.jsonl").write_text('{"id": 1}\n')
    assert "x.jsonl:1: expected" in board(capsys, f"predictions:{tmp_path}", "--sets", "x", code=2).err
    for row in (
        {"id": "a", "reference": None, "value": "x"},
        {"text": None, "pred_text": "x"},
        {"text": 1, "pred_text": "x"},
    ):
        (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n")
        assert "x.jsonl:1: expected" in board(capsys, f"predictions:{tmp_path}", "--sets", "x", code=2).err
    (tmp_path / "x.jsonl").write_text(
        '\ufeff{"text": "one two", "pred_text": null}\n'
    )  # absent, as attune writes it, too
    found = json.loads(board(capsys, f"predictions:{tmp_path}", "--sets", "x", "--json").out)
    assert found["sets"]["x"]["wer"][0] == 100

import json
import subprocess
import sys

import pytest

from attune.cli import main
from attune.report.predictions import write_predictions
from attune.types import Prediction

TRANSCRIPTS = [
    Prediction("a", "the bat sat", "The cat sat."),
    Prediction("b", "hello", "Hello!"),
]


@pytest.fixture
def transcripts(tmp_path):
    path = tmp_path / "test.jsonl"
    write_predictions(path, TRANSCRIPTS)
    return path


def test_raw_and_normalized_scores_are_shown_with_the_normalizer(transcripts, capsys):
    assert main(["score", str(transcripts), "--normalizer", "basic"]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["wer", "25.00", "%"] in [line[:3] for line in shown]
    assert ["raw_wer", "100.00", "%"] in [line[:3] for line in shown]
    assert ["normalizer", "basic"] in shown


def test_json_has_figures_counts_and_the_normalizer(transcripts, capsys):
    assert main(["score", str(transcripts), "--json", "--normalizer", "none"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["scores"]["wer"]["value"] == printed["scores"]["raw_wer"]["value"] == 100
    assert printed["counts"]["num_scored_sents"] == 2
    assert printed["conditions"] == {"normalizer": "none"}
    assert printed["scores"]["cer"].items() >= {"unit": "%", "higher_is_better": False}.items()


def test_alignments_are_of_the_normalized_text(transcripts, tmp_path):
    assert main(["score", str(transcripts), "--normalizer", "basic", "--alignments", str(tmp_path / "errors.txt")]) == 0
    assert (tmp_path / "errors.txt").read_text().splitlines() == [
        "a: 1 error in 3 words (1 substitution)",
        "  ref  the  cat  sat",
        "  hyp  the  bat  sat",
        "            S",
    ]


def test_an_absent_prediction_is_named_and_the_exit_is_not_zero(tmp_path, capsys):
    write_predictions(tmp_path / "test.jsonl", [*TRANSCRIPTS, Prediction("lost", None, "gone")])
    assert main(["score", str(tmp_path / "test.jsonl"), "--json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["counts"]["num_absent_sents"] == 1
    assert "1 of 3 not scored: no prediction (lost)" in printed.err


def test_nothing_but_absent_predictions_still_prints_valid_json(tmp_path, capsys):
    write_predictions(tmp_path / "test.jsonl", [Prediction("lost", None, "gone")])
    assert main(["score", str(tmp_path / "test.jsonl"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["scores"]["wer"] is None


def test_labels_are_scored_as_they_are(tmp_path, capsys):
    write_predictions(tmp_path / "test.jsonl", [Prediction("a", "yes", "yes"), Prediction("b", "No", "no")])
    assert main(["score", str(tmp_path / "test.jsonl"), "--task", "classify", "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["scores"]["accuracy"]
    assert (accuracy["value"], accuracy["higher_is_better"]) == (50, True)


@pytest.mark.parametrize("task", ["transcribe", "classify"])
def test_predictions_that_are_not_text_are_refused_in_a_line(tmp_path, capsys, task):
    write_predictions(tmp_path / "test.jsonl", [Prediction("a", "yes", "yes"), Prediction("b", [0.5, 1.5], "no")])
    assert main(["score", str(tmp_path / "test.jsonl"), "--task", task]) == 2
    assert capsys.readouterr().err == "Prediction 'b': the value is a list, not text.\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--normalizer", "basc"], "did you mean 'basic'?"),
        (["--task", "classify", "--normalizer", "basic"], "are for transcripts. Remove"),
        (["--alignments", "/dev/null/errors.txt"], "Cannot write alignments"),
    ],
)
def test_mistakes_are_messages(transcripts, capsys, options, message):
    assert main(["score", str(transcripts), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_bad_file_is_a_message(tmp_path, capsys):
    (tmp_path / "test.jsonl").write_text("oops\n")
    assert main(["score", str(tmp_path / "test.jsonl")]) == 2
    assert "line 1: not JSON" in capsys.readouterr().err


def test_scoring_does_not_load_torch(transcripts):
    program = "import sys; from attune.cli import main; code = main(); sys.exit(9 if 'torch' in sys.modules else code)"
    done = subprocess.run([sys.executable, "-c", program, "score", str(transcripts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

import json
from pathlib import Path

import numpy as np
import pytest

from attune.errors import DataError
from attune.report.predictions import normalized, read_predictions, write_predictions, write_waveform
from attune.types import Prediction, Waveform

PREDICTIONS = [
    Prediction("b", "नमस्ते", "नमस्ते", -1.25),
    Prediction("a", None, "with \u2028 and \x85 and\nnewline"),
    Prediction("c", "", "", 0.0),
]


def test_what_is_written_is_read_back_in_the_same_order(tmp_path):
    path = tmp_path / "predictions" / "test.jsonl"
    write_predictions(path, PREDICTIONS)
    assert read_predictions(path) == PREDICTIONS
    assert [file.name for file in path.parent.iterdir()] == ["test.jsonl"]


def test_values_are_any_json_or_a_file_beside_the_predictions(tmp_path):
    predictions = [
        Prediction("embedding", [0.25, -1.5], {"speaker": "alto"}),
        Prediction("segments", [{"start": 0.0, "end": 1.25, "speaker": "a"}], []),
        Prediction("audio", None, "clean.wav", 3.5, "test/audio.wav"),
        Prediction("label", True, 7),
    ]
    write_predictions(tmp_path / "test.jsonl", predictions)
    assert read_predictions(tmp_path / "test.jsonl") == predictions
    assert [prediction.is_absent for prediction in [*predictions, Prediction("lost", None, "x")]] == [False] * 4 + [
        True
    ]


@pytest.mark.parametrize("value", [[float("nan")], {1, 2}, b"bytes"])
def test_a_value_that_is_no_json_is_refused_with_its_id(tmp_path, value):
    with pytest.raises(DataError, match="Prediction 'a' is not valid JSON"):
        write_predictions(tmp_path / "test.jsonl", [Prediction("a", value, "r")])
    assert not (tmp_path / "test.jsonl").exists()


def test_lines_have_a_fixed_order_of_fields_readable_text_and_rounded_scores(tmp_path):
    path = tmp_path / "test.jsonl"
    write_predictions(path, [Prediction("ö", "да", "да", -1.23456), Prediction("x", "", "", -0.0001)])
    assert path.read_text(encoding="utf-8").splitlines() == [
        '{"id": "ö", "value": "да", "reference": "да", "score": -1.235}',
        '{"id": "x", "value": "", "reference": "", "score": 0.0}',
    ]


@pytest.mark.parametrize("score", [float("-inf"), float("nan"), None])
def test_a_score_that_is_no_number_is_null(tmp_path, score):
    write_predictions(tmp_path / "test.jsonl", [Prediction("a", "b", "b", score)])
    assert json.loads((tmp_path / "test.jsonl").read_text())["score"] is None


@pytest.mark.parametrize("score", ["NaN", "-Infinity"])
def test_a_score_of_another_program_that_is_no_number_is_absent(tmp_path, score):
    path = tmp_path / "predictions.jsonl"
    path.write_text(f'{{"id": "a", "value": "x", "reference": "x", "score": {score}}}\n')
    assert read_predictions(path)[0].score is None
    path.write_text(f'{{"id": "a b", "value": {score}, "reference": true}}\n')
    with pytest.raises(DataError, match="line 1: 'value' is not a finite number"):
        read_predictions(path)


def test_other_fields_and_a_missing_score_are_no_mistake(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text('{"reference": "r", "id": "a", "value": "v", "speaker": 7}')
    assert read_predictions(path) == [Prediction("a", "v", "r")]


def test_a_byte_order_mark_of_another_program_is_no_mistake(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text('{"id": "a", "value": "v", "reference": "r"}\n', encoding="utf-8-sig")
    assert read_predictions(path) == [Prediction("a", "v", "r")]


def test_every_mistake_is_told_at_once_with_its_line(tmp_path):
    path = tmp_path / "test.jsonl"
    rows = [
        '{"id": "a", "value": "v", "reference": "r"}',
        '{"id": "b", "value": "v"',
        "[1]",
        '{"id": "c", "value": 3}',
        '{"id": "a", "value": null, "reference": "r"}',
        '{"id": 5, "value": "v", "reference": null, "score": true, "file": "../v.wav"}',
        "",
    ]
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError) as refusal:
        read_predictions(path)
    problems = str(refusal.value).splitlines()[1:-1]
    assert [problem.split(":")[0].strip() for problem in problems] == [f"line {line}" for line in (2, 3, 4, 5, 6, 7)]
    assert "not JSON" in problems[0]
    assert "not a JSON object" in problems[1]
    assert "no 'reference'" in problems[2]
    assert "id 'a' is already on line 1" in problems[3]
    for wrong in ("'id' is not a string", "'score' is neither a number nor null", "'file' is not a path inside"):
        assert wrong in problems[4]


def test_a_thousand_mistakes_do_not_fill_the_screen(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text("oops\n" * 1000)
    with pytest.raises(DataError, match="and 980 more"):
        read_predictions(path)


@pytest.mark.parametrize(("content", "message"), [(b"", "the file is empty"), (b"\xff\xfe{}", "not UTF-8")])
def test_an_empty_or_binary_file_is_refused(tmp_path, content, message):
    (tmp_path / "test.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_predictions(tmp_path / "test.jsonl")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"test\.jsonl: No such file"):
        read_predictions(tmp_path / "test.jsonl")


def test_normalizing_leaves_absent_values_absent():
    shouted = normalized(PREDICTIONS[:2], str.upper)
    assert shouted[1].value is None
    assert shouted[1].reference.startswith("WITH")
    assert shouted[0].score == -1.25


def test_long_names_that_differ_at_the_end_are_files_of_their_own(tmp_path):
    audio = Waveform(np.zeros(16, np.float32))
    names = ["录音" * 30 + str(number) for number in (1, 2)]
    files = {write_waveform(tmp_path, "test", name, audio) for name in names}
    assert len(files) == 2 and all(len(Path(file).name) < 255 and (tmp_path / file).is_file() for file in files)

"""`attune verify` holds for a sound run, and says so when something does not hold."""

import json

import numpy as np
import pytest

from attune.report.predictions import write_features, write_predictions, write_waveform
from attune.stages.verify import compared, read_values
from attune.types import Features, Prediction, Waveform

from processes import attune
from tiny import write_recipe

PREDICTIONS = [Prediction("a", "one", "one", -1.0), Prediction("b", "two", "two", -2.0)]


def test_a_prediction_that_differs_does_not_hold():
    other = [PREDICTIONS[0], Prediction("b", "too", "two", -2.0)]
    finding = compared("the promise", "dev", PREDICTIONS, other)
    assert not finding.holds and "1 differ" in finding.compared


def test_a_score_that_differs_by_more_than_its_last_digit_does_not_hold():
    assert compared("the promise", "dev", PREDICTIONS, PREDICTIONS).holds
    other = [PREDICTIONS[0], Prediction("b", "two", "two", -2.1)]
    finding = compared("the promise", "dev", PREDICTIONS, other)
    assert not finding.holds and finding.largest_difference == pytest.approx(0.1)


def written(folder, write, output):
    """What is read of an evaluation with one prediction that is a file."""
    folder.mkdir()
    write_predictions(
        folder / "predictions.jsonl", [Prediction("a", None, "a", file=write(folder, "dev", "a", output))]
    )
    return read_values(folder)


def test_predictions_that_are_files_are_compared_by_their_numbers(tmp_path):
    numbers = np.linspace(0.1, 30.0, 12, dtype=np.float32).reshape(4, 3)
    for name, write, make in (("frames", write_features, Features), ("audio", write_waveform, Waveform)):
        shapes = {"same": numbers, "rounded": numbers * (1 + 1e-7), "other": numbers * 1.01, "shorter": numbers[:3]}
        found = {each: written(tmp_path / f"{name}-{each}", write, make(shape)) for each, shape in shapes.items()}
        holds = {each: compared("the promise", "dev", found["same"], found[each]).holds for each in shapes}
        assert holds == {"same": True, "rounded": True, "other": False, "shorter": False}, name


@pytest.mark.recipe
def test_every_promise_holds_for_a_run(tmp_path):
    recipe = write_recipe(tmp_path)
    broken = sorted((tmp_path / "dev/audio").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:3000])
    settings = ["data.bad_rows=drop", "train.patience=3", "train.eval_utterances=4"]
    assert attune("train", recipe, "train.steps=6", "data.test=[]", *settings).returncode == 0
    done = attune("verify", tmp_path / "run", "--json", "--workers", "1", "--device", "cpu")
    findings = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert len(findings) == 4 and all(finding["holds"] for finding in findings)
    assert findings[-1]["largest_difference"] == 0.0

"""`attune verify` holds for a sound run, and says so when something does not hold."""

import json

import pytest

from attune.stages.verify import compared
from attune.types import Prediction

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

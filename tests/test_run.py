import json

import pytest

from attune.run import Best, Run, Status
from attune.scoring.accuracy import ACCURACY
from attune.scoring.error_rates import WER
from attune.types import Metric

SI_SDR = Metric("si_sdr", "dB", True, "Scale-invariant signal-to-distortion ratio.")


def test_best_is_never_replaced_by_worse_equal_or_nan(tmp_path):
    run = Run(tmp_path)
    assert not run.offer_best("dev.wer", WER, float("nan"), 1) and run.best() is None
    assert run.offer_best("dev.wer", WER, 20.0, 1)
    for value in (21.0, 20.0, float("nan")):
        assert not run.offer_best("dev.wer", WER, value, 2)
    assert run.best().step == 1
    assert run.offer_best("dev.wer", WER, 19.0, 3) and run.best().step == 3


@pytest.mark.parametrize("metric", [ACCURACY, SI_SDR])
def test_more_is_better_where_the_metric_is_declared_so(tmp_path, metric):
    run, name = Run(tmp_path), f"dev.{metric.name}"
    run.offer_best(name, metric, -5.0, 1)
    assert not run.offer_best(name, metric, -8.0, 2) and run.offer_best(name, metric, 9.5, 3)


def test_a_best_checkpoint_of_an_older_version_is_read_and_its_direction_is_the_metrics(tmp_path):
    run = Run(tmp_path)
    (tmp_path / "best.json").write_text('{\n "metric": "dev.accuracy",\n "value": 90.0,\n "step": 4000\n}\n')
    assert run.best() == Best("dev.accuracy", 90.0, 4000)
    assert not run.is_best("dev.accuracy", ACCURACY, 80.0) and run.is_best("dev.accuracy", ACCURACY, 95.0)


def test_a_status_says_which_kind_of_error_ended_the_run(tmp_path):
    run = Run(tmp_path)
    run.set_status("failed", "The loss is not finite.", "TrainingError")
    saved = json.loads((tmp_path / "status.json").read_text())
    assert saved.items() >= {"state": "failed", "error_kind": "TrainingError"}.items()
    assert run.status() == Status(**saved) and run.status().message == "The loss is not finite."


@pytest.mark.parametrize(
    ("state", "reason", "error_kind", "message"),
    [
        ("failed", "TrainingError: loss: nan", "TrainingError", "loss: nan"),
        ("failed", "Rank 0 was killed by SIGKILL.", "", "Rank 0 was killed by SIGKILL."),
        ("failed", "Rank 1 says: no", "", "Rank 1 says: no"),
        ("preempted", "Asked: step 3 is saved.", "", "Asked: step 3 is saved."),
        ("done", "", "", ""),
    ],
)
def test_a_status_of_an_older_version_is_read(tmp_path, state, reason, error_kind, message):
    saved = {"state": state, "reason": reason, "pid": 7, "time": 1.5}
    (tmp_path / "status.json").write_text(json.dumps(saved))
    assert Run(tmp_path).status() == Status(state, error_kind, message, 7, 1.5)

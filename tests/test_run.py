import json
from concurrent.futures import ThreadPoolExecutor

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


def test_neither_a_status_nor_the_log_has_a_password_of_an_error_that_is_not_our_own(tmp_path):
    run, error = Run(tmp_path), "cannot reach https://user:hunter2@tracking/api"
    run.set_status("failed", error, "ConnectionError")
    run.log("tracker_failed", reason=error)
    assert "hunter2" not in (tmp_path / "status.json").read_text() + (tmp_path / "log.jsonl").read_text()
    assert (
        [line["reason"] for line in run.log_lines()] == [run.status().message] == ["cannot reach https://tracking/api"]
    )


def test_a_line_after_one_that_was_cut_off_is_not_lost(tmp_path):
    run = Run(tmp_path)
    run.log("step", step=1)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"time": 1.0, "event": "st')  # a full disk, or a machine that lost its power
    run.log("resumed", step=1)
    run.log("step", step=2)
    assert [(line["event"], line["step"]) for line in run.log_lines()] == [("step", 1), ("resumed", 1), ("step", 2)]


@pytest.mark.parametrize(
    "content",
    [b'{"metric": "dev.wer", "value": "x", "step": 4}', b'{"metric": "dev.wer", "value": 1, "step": 1.5}', b"[]"],
)
def test_a_record_of_other_values_than_it_should_have_is_no_record(tmp_path, content):
    for name in ("best.json", "status.json", "scores.json", "fusion.json"):
        (tmp_path / name).write_bytes(content)
    run = Run(tmp_path)
    assert run.best() is None and run.status() is None and run.scores() == {} and run.tuned_decoding() == ()


def test_a_damaged_line_of_a_log_is_left_out(tmp_path):
    run = Run(tmp_path)
    run.log("step", step=1)
    with (tmp_path / "log.jsonl").open("ab") as log:
        log.write(b'5\n[]\n\xff\xfe\n{"event": "step", "step": 2}\n{"event": "scores", "step": 2}\n' + b"[" * 100_000)
    assert [row["step"] for row in run.history()] == [1, 2]


def test_evaluations_that_end_at_once_all_keep_their_scores(tmp_path):
    run, names = Run(tmp_path), [f"set-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: run.add_scores(name, {"utterances": 1}), names))
    assert sorted(run.scores()) == sorted(names)

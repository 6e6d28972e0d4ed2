"""Trackers: what is logged is there to read with each tracker's own tools, offline; one that fails stops nothing."""

import json
import time

import pytest

from attune.errors import ConfigError
from attune.report.trackers import Sample, TrackedRun, Trackers, TrackerType, require_trackers
from attune.run import Run
from attune.testing.data import speak

from processes import attune
from tiny import write_recipe

pytestmark = pytest.mark.recipe

SAMPLES = [Sample("u1", "one two", "one <b>2|</b>", speak("one two")), Sample("u2", "three", "three")]


def track(folder, *names):
    """Two steps, an evaluation and the end, with the given trackers; returns what failed."""
    failed = []
    run = TrackedRun(folder, "demo", {"optimizer.lr": 1e-3, "seed": 17})
    trackers = Trackers(names, run, lambda name, reason: failed.append((name, reason)))
    trackers.scalars(1, {"train/loss": 2.0, "train/lr": 1e-3, "train/gradient_norm": float("nan")})
    trackers.scalars(2, {"train/loss": 1.0, "train/lr": 1e-3})
    trackers.samples(2, "dev", SAMPLES)
    trackers.scalars(1, {"test/wer": 30.0})  # of an earlier step, as a final score may be
    trackers.close()
    return failed


def test_tensorboard_has_figures_texts_and_audio(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert track(tmp_path, "tensorboard") == []
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(each.step, each.value) for each in found.Scalars("train/loss")] == [(1, 2.0), (2, 1.0)]
    assert "train/gradient_norm" not in found.Tags()["scalars"]
    text = found.Tensors("dev/samples/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| u1 | one two | one &lt;b>2\\|&lt;/b> |" in text
    assert found.Audio("dev/u1")[0].encoded_audio_string.startswith(b"OggS")


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_recording_is_encoded_once_however_often_it_is_evaluated(name, tmp_path, monkeypatch):
    pytest.importorskip(name)
    encoded = []
    module = "attune.report.board" if name == "tensorboard" else "attune.report.trackers.mlflow"
    monkeypatch.setattr(f"{module}.opus", lambda samples: encoded.append(len(samples)) or b"OggS")
    trackers = Trackers([name], TrackedRun(tmp_path, "demo", {}), lambda *failed: pytest.fail(str(failed)))
    for step in (1, 2, 3):
        trackers.samples(step, "dev", SAMPLES)
    trackers.samples(3, "test", SAMPLES)
    trackers.close()
    assert encoded == 2 * [len(SAMPLES[0].audio)]


def logged_by_wandb(file):
    """The last value of each figure in a file of theirs, as JSON."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store, logged = DataStore(), {}
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        logged |= {"/".join(item.nested_key): item.value_json for item in record.history.item}
    return logged


@pytest.mark.filterwarnings("ignore")  # of wandb's own temporary folders
def test_wandb_has_a_recording_once_however_often_it_is_evaluated(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    trackers = Trackers(["wandb"], TrackedRun(tmp_path, "demo", {}), lambda *failed: pytest.fail(str(failed)))
    for step in (1, 2, 3):
        trackers.samples(step, "dev", SAMPLES)
    trackers.samples(3, "test", SAMPLES)
    trackers.close()
    kept = [path.parent.name for path in tmp_path.glob("wandb/offline-run-*/files/media/audio/**/*.wav")]
    assert sorted(kept) == ["dev", "test"]


@pytest.mark.filterwarnings("ignore")  # of wandb's own temporary folders
def test_wandb_keeps_everything_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    assert track(tmp_path, "wandb") == []
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 30  # another process writes the file, in its own time
    while "test/wer" not in (logged := logged_by_wandb(file)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert json.loads(logged["train/loss"]) == 1.0 and json.loads(logged["test/wer"]) == 30.0
    assert json.loads(logged["dev/samples/nrows"]) == 2
    assert list(tmp_path.rglob("*.wav")) and wandb.run is None
    assert not list(tmp_path.rglob("wandb-metadata.json"))


@pytest.mark.filterwarnings("ignore")  # of mlflow's own
def test_mlflow_keeps_everything_in_files_and_goes_on_with_the_same_run(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    assert track(tmp_path, "mlflow") == []
    assert track(tmp_path, "mlflow") == []
    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("attune").experiment_id])
    assert run.data.params["seed"] == "17" and run.info.status == "FINISHED"
    assert [each.value for each in client.get_metric_history(run.info.run_id, "train/loss")][:2] == [2.0, 1.0]
    kept = {each.path for each in client.list_artifacts(run.info.run_id, "samples")}
    assert kept == {"samples/dev-00000002.md", "samples/dev-0.opus"}


class Failing:
    """A tracker whose server is gone."""

    calls = 0

    def scalars(self, step, values):
        Failing.calls += 1
        raise ConnectionError("https://user:hunter2@server is gone")

    samples = close = scalars


TRACKER = TrackerType("json", lambda run: Failing())


def test_a_tracker_that_fails_is_reported_once_and_left_out(tmp_path):
    pytest.importorskip("tensorboard")
    plug_in = tmp_path / "failing.py"
    plug_in.write_text("from test_trackers import TRACKER")
    failed = track(tmp_path, str(plug_in), "tensorboard")
    assert failed == [(str(plug_in), "ConnectionError: https://server is gone")] and Failing.calls == 1
    assert list((tmp_path / "tensorboard").iterdir())


def test_a_run_goes_on_to_its_end_without_a_tracker_that_raises(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("attune.report.trackers.tensorboard.TRACKER", TRACKER)
    done = attune("train", write_recipe(tmp_path), "train.track=[tensorboard]", "train.steps=6", "train.eval_every=3")
    assert done.returncode == 0, done.stderr
    assert "tracker stopped: tensorboard: ConnectionError: https://server is gone" in done.stdout
    run = Run(tmp_path / "run")
    assert run.state() == "done" and run.history()[-1]["memory_gib"] > 0
    events = [line["event"] for line in run.log_lines()]
    assert events.count("tracker_failed") == 1 and events.count("samples") == 2
    assert next(line for line in run.log_lines() if line["event"] == "samples")["samples"][0]["reference"]


def test_one_that_cannot_even_start_is_left_out_too(tmp_path):
    (tmp_path / "tensorboard").write_text("in the way")
    assert [name for name, _ in track(tmp_path, "tensorboard")] == ["tensorboard"]


def test_unknown_and_absent_trackers_stop_a_run_before_it_starts(monkeypatch):
    with pytest.raises(ConfigError, match="did you mean 'wandb'"):
        require_trackers(["wandbb"])
    monkeypatch.setattr("attune.report.trackers._is_installed", lambda name: False)
    with pytest.raises(ConfigError, match="pip install wandb"):
        require_trackers(["wandb"])
    assert require_trackers(None) == ()

"""MLflow: files in the run's folder, or the server of MLFLOW_TRACKING_URI."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attune.report.sounds import opus
from attune.report.trackers import Sample, TrackedRun, TrackerType
from attune.report.trackers.tensorboard import table

EXPERIMENT = "attune"
KEPT = "attune-run-id"  # a file with the id of the run, to go on with
LONGEST = 500  # characters of a parameter


class Mlflow:
    """Figures, and for each evaluation a table of samples and their recordings."""

    def __init__(self, client: Any, run_id: str) -> None:
        self._client, self._id = client, run_id
        self._has_audio: set[str] = set()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Figures by name."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._id, [Metric(name, value, now, step) for name, value in values.items()])

    def samples(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table in Markdown, and Opus files beside it, once."""
        self._client.log_text(self._id, table(samples), f"samples/{split}-{step:08d}.md")
        with tempfile.TemporaryDirectory() as folder:
            for number, each in enumerate(samples):
                path = Path(folder) / f"{split}-{number}.opus"
                if each.audio is not None and path.name not in self._has_audio:
                    path.write_bytes(opus(each.audio))
                    self._client.log_artifact(self._id, str(path), "samples")
                    self._has_audio.add(path.name)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._id)


def _open(run: TrackedRun) -> Mlflow:
    # MLflow keeps files for those who ask for them; a database would be another package.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    folder = run.folder.absolute() / "mlruns"
    client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or folder.as_uri())
    kept = folder / KEPT
    if kept.is_file():
        return Mlflow(client, kept.read_text().strip())
    found = client.get_experiment_by_name(EXPERIMENT)
    experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
    run_id = client.create_run(experiment, run_name=run.name).info.run_id
    for name, value in run.settings.items():
        client.log_param(run_id, name, str(value)[:LONGEST])
    folder.mkdir(exist_ok=True)
    kept.write_text(f"{run_id}\n")
    return Mlflow(client, run_id)


TRACKER = TrackerType("mlflow", _open)

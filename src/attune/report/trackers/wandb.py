"""Weights & Biases: offline in the run's folder, unless WANDB_API_KEY or WANDB_MODE says otherwise.

`wandb sync RUN/wandb/offline-run-*` uploads later what was kept offline.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from attune.report.trackers import Sample, TrackedRun, TrackerType
from attune.types import SAMPLE_RATE

PROJECT = "attune"


class Wandb:
    """Figures over attune's own steps, and a table and players for each evaluation."""

    def __init__(self, run: Any) -> None:
        self._run = run
        # Their counter only rises, and a final score may belong to an earlier step.
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        self._has_audio: set[str] = set()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Figures by name."""
        self._run.log({"step": step, **values})

    def samples(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table of texts, and once a player for each recording, which would be uploaded every time."""
        import wandb

        table = wandb.Table(columns=["id", "reference", "hypothesis"])
        for each in samples:
            table.add_data(each.id, each.reference, each.hypothesis)
        # Audio inside a table would be kept in a cache of the user's, not with the run.
        players = {
            name: wandb.Audio(each.audio, sample_rate=SAMPLE_RATE, caption=each.reference)
            for each in samples
            if each.audio is not None and (name := f"{split}/{each.id}") not in self._has_audio
        }
        self._has_audio |= players.keys()
        self._run.log({"step": step, f"{split}/samples": table, **players})

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()


def _open(run: TrackedRun) -> Wandb:
    import wandb

    mode: Any = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
    name = hashlib.sha256(str(run.folder.absolute()).encode()).hexdigest()[:12]
    # Machine, program and user stay out of what may be pushed with the model.
    settings = wandb.Settings(silent=True, console="off", disable_git=True, x_disable_meta=True, x_disable_stats=True)
    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        name=run.name,
        id=name,
        resume="allow" if mode == "online" else None,
        dir=str(run.folder),
        config=dict(run.settings),
        mode=mode,
        settings=settings,
    )
    return Wandb(opened)


TRACKER = TrackerType("wandb", _open)

"""Where a training's figures go beside log.jsonl: one file per tracker, exporting TRACKER.

A tracker is for looking; a run does not depend on it. One that fails is left out from then on, and the run goes on.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attune import catalog
from attune.catalog import Kind
from attune.errors import ConfigError
from attune.plain_yaml import Plain
from attune.secrets import without_secrets


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """What a model makes of an utterance: its reference and hypothesis, and the recording where there is one."""

    id: str
    reference: str
    hypothesis: str
    audio: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that is followed: its folder, its name, and its recipe as dotted keys."""

    folder: Path
    name: str
    settings: Mapping[str, Plain]


class Tracker(Protocol):
    """Takes figures and samples of steps; any method may raise."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Figures by name, such as train/loss; all are finite."""

    def samples(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Some utterances of an evaluation."""

    def close(self) -> None:
        """The training is over."""


@dataclass(frozen=True, slots=True)
class TrackerType:
    """A tracker: the package it needs, and what opens it."""

    package: str
    open: Callable[[TrackedRun], Tracker]


TRACKERS: Kind[TrackerType] = Kind("report.trackers", "TRACKER")
DEFAULT = ("tensorboard",)


def require_trackers(names: Sequence[str] | None) -> tuple[str, ...]:
    """The trackers to use: those named, which must be there, or the default ones that are installed."""
    if names is None:
        return tuple(name for name in DEFAULT if _is_installed(name))
    for name in names:
        if not _is_installed(name):
            package = catalog.find(TRACKERS, name).package
            raise ConfigError(
                f"train.track: {name} needs the package {package}. Run `pip install {package}`, or remove it from the "
                "list."
            )
    return tuple(names)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(catalog.find(TRACKERS, name).package) is not None


class Trackers:
    """Several trackers as one, of which any may fail; `report` gets the name of one that did, and why."""

    def __init__(self, names: Sequence[str], run: TrackedRun, report: Callable[[str, str], None]) -> None:
        self._run, self._report = run, report
        self._waiting = list(names)
        self._open: dict[str, Tracker] = {}

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Figures of a step; those that are not finite are in log.jsonl alone."""
        known = {name: value for name, value in values.items() if math.isfinite(value)}
        self._each(lambda tracker: tracker.scalars(step, known))

    def samples(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Some utterances of an evaluation."""
        self._each(lambda tracker: tracker.samples(step, split, samples))

    def close(self) -> None:
        """Let go of all that were opened."""
        self._waiting.clear()
        self._each(lambda tracker: tracker.close())
        self._open.clear()

    def _each(self, use: Callable[[Tracker], None]) -> None:
        """Whatever goes wrong in a tracker is the tracker's alone: a server that is gone, a quota, a bug."""
        for name in self._waiting:
            self._try(name, lambda name=name: self._start(name))  # type: ignore[misc]
        self._waiting.clear()
        for name, tracker in list(self._open.items()):
            self._try(name, lambda tracker=tracker: use(tracker))  # type: ignore[misc]

    def _start(self, name: str) -> None:
        self._open[name] = catalog.find(TRACKERS, name).open(self._run)

    def _try(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._open.pop(name, None)
            self._report(name, without_secrets(f"{type(error).__name__}: {error}"))  # a server's address may have some

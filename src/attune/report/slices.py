"""Scores of parts of a set: by duration, speaker, data set, language, noise and the labels of the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Json, Metric
from attune.scoring import bootstrap

SECONDS = (1, 2, 5, 10, 15, 20, 30)
DECIBELS = (0, 5, 10, 15, 20, 30, 40)
MOST_GROUPS = 300  # of one kind, the largest
MOST_VALUES = 50  # of a label that is worth a slice


@dataclass(frozen=True, slots=True, eq=False)
class Ratios:
    """A metric that is a ratio of sums: what each utterance adds to both."""

    metric: Metric
    numerators: NDArray[np.int64]
    denominators: NDArray[np.int64]


def slices_of(ratios: Ratios, groups: Mapping[str, Sequence[str | None]]) -> Json:
    """Each kind of group with the score of every group in it: name, utterances, value, low, high."""
    found = {kind: _scored(ratios, names) for kind, names in groups.items()}
    return {kind: rows for kind, rows in found.items() if len(rows) > 1}


def _scored(ratios: Ratios, names: Sequence[str | None]) -> list[Json]:
    members: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        if name is not None:
            members.setdefault(name, []).append(row)
    largest = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_GROUPS]
    return [_score(name, ratios, np.array(rows)) for name, rows in largest]


def _score(name: str, ratios: Ratios, rows: NDArray[np.int64]) -> Json:
    score = bootstrap.percent(ratios.metric, ratios.numerators[rows], ratios.denominators[rows])
    return [name, len(rows), round(score.value, 2), round(score.low, 2), round(score.high, 2)]


def bins(values: Sequence[float | None], edges: Sequence[float], unit: str) -> list[str | None]:
    """The name of the interval that each value is in."""
    return [None if value is None else _bin(value, edges, unit) for value in values]


def _bin(value: float, edges: Sequence[float], unit: str) -> str:
    place = int(np.searchsorted(edges, value, side="right"))
    if place == 0:
        return f"< {edges[0]} {unit}"
    if place == len(edges):
        return f"≥ {edges[-1]} {unit}"
    return f"{edges[place - 1]}–{edges[place]} {unit}"

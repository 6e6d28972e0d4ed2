"""Diarization error rate: missed, falsely detected and confused speech over all speech of the reference.

Times are compared exactly, not on a grid, and overlapping speakers count each. Speakers are matched one to one so that
the error is lowest. `collar` seconds on **each side** of every reference boundary are not scored, as in NIST's md-eval
and dscore; pyannote's collar is the sum of both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Metric

DER = Metric("der", "%", False, "Diarization error rate: missed, falsely detected and confused speech over all speech.")

Segment = tuple[float, float, str]  # start, end, speaker


class DiarizationErrors(NamedTuple):
    """Seconds of each kind of error, and of speech in the reference; a second with two speakers counts twice."""

    missed: float
    false_alarm: float
    confusion: float
    speech: float

    @property
    def total(self) -> float:
        """All errors."""
        return self.missed + self.false_alarm + self.confusion


def diarization_errors(
    reference: Sequence[Segment], hypothesis: Sequence[Segment], collar: float = 0.0
) -> DiarizationErrors:
    """The errors of a recording under the best matching of its speakers."""
    edges = _edges(reference, hypothesis, collar)
    seconds = np.diff(edges)
    middles = edges[:-1] + seconds / 2
    wanted, found = _activity(reference, middles), _activity(hypothesis, middles)  # (S, pieces)
    seconds = seconds * _is_scored(reference, middles, collar)
    common = (wanted[:, None] & found[None]) @ seconds  # (reference speakers, hypothesis speakers)
    matched = best_matching(common)
    counts, others = wanted.sum(0), found.sum(0)
    both = np.minimum(counts, others)
    return DiarizationErrors(
        missed=float((counts - both) @ seconds),
        false_alarm=float((others - both) @ seconds),
        confusion=max(0.0, float(both @ seconds) - matched),
        speech=float(counts @ seconds),
    )


def best_matching(gains: NDArray[np.float64]) -> float:
    """The largest sum of gains (rows, columns) with every row and column used at most once."""
    if gains.shape[0] > gains.shape[1]:
        gains = gains.T
    rows, columns = gains.shape

    @cache
    def best(row: int, free: int) -> float:
        if row == rows:
            return 0.0
        taken = (
            float(gains[row, column]) + best(row + 1, free & ~(1 << column))
            for column in range(columns)
            if free & (1 << column)
        )
        return max([best(row + 1, free), *taken])

    return best(0, (1 << columns) - 1)


def _edges(reference: Sequence[Segment], hypothesis: Sequence[Segment], collar: float) -> NDArray[np.float64]:
    times = {time for start, end, _ in (*reference, *hypothesis) for time in (start, end)}
    if collar:
        times |= {time + shift for start, end, _ in reference for time in (start, end) for shift in (-collar, collar)}
    return np.array(sorted(times) or [0.0], np.float64)


def _activity(segments: Iterable[Segment], times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Who is active at each time (speakers, times)."""
    segments = list(segments)
    speakers = sorted({speaker for _, _, speaker in segments})
    active = np.zeros((len(speakers), len(times)), np.bool_)
    for start, end, speaker in segments:
        active[speakers.index(speaker)] |= (start <= times) & (times < end)
    return active


def _is_scored(reference: Sequence[Segment], times: NDArray[np.float64], collar: float) -> NDArray[np.bool_]:
    scored = np.ones(len(times), np.bool_)
    for start, end, _ in reference if collar else ():
        for edge in (start, end):
            scored &= np.abs(times - edge) >= collar
    return scored

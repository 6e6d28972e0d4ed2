"""Diarization error rate: missed, falsely detected and confused speech over all speech of the reference.

Times are compared exactly, not on a grid, and overlapping speakers count each. Speakers are matched one to one so that
the error is lowest. `collar` seconds on **each side** of every reference boundary are not scored, as in NIST's md-eval
and dscore; pyannote's collar is the sum of both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """The largest sum of gains (rows, columns), none negative, with every row and column used at most once.

    The Hungarian algorithm: rows are matched one by one, each along the cheapest path of exchanges.
    """
    gains = gains.T if gains.shape[0] > gains.shape[1] else gains
    rows, columns = gains.shape
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    owner = np.zeros(columns + 1, np.int64)  # the row of each column, both from 1; column 0 is where a path begins
    for row in range(1, rows + 1):
        owner[0], column = row, 0
        slack, before = np.full(columns + 1, np.inf), np.zeros(columns + 1, np.int64)
        is_reached = np.zeros(columns + 1, np.bool_)
        while owner[column]:
            is_reached[column] = True
            costs = -gains[owner[column] - 1] - row_price[owner[column]] - column_price[1:]
            closer = np.append(False, ~is_reached[1:] & (costs < slack[1:]))
            slack[closer], before[closer] = costs[closer[1:]], column
            column = int(np.argmin(np.where(is_reached, np.inf, slack)))
            step = slack[column]
            row_price[owner[is_reached]] += step
            column_price[is_reached] -= step
            slack[~is_reached] -= step
        while column:
            owner[column], column = owner[before[column]], int(before[column])
    matched = np.flatnonzero(owner[1:])
    return float(gains[owner[1:][matched] - 1, matched].sum())


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

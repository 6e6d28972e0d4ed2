"""The curve of a detector: how many impostors are accepted for how many targets that are rejected."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attune.metrics import Json
from attune.scoring.detection import Trials, equal_error_rate

MOST_POINTS = 400
LEAST = 1e-4  # a rate that a normal-deviate axis still shows
BINS = 60


def trials_data(scores: Sequence[float], is_target: Sequence[bool]) -> Json:
    """A DET curve in as many points as a screen shows, and how the scores of both kinds of trials are spread.

    None where one kind is missing, as there is nothing to draw.
    """
    values, targets = np.array(scores, np.float64), np.array(is_target, np.bool_)
    if targets.all() or not targets.any():
        return None
    trials = Trials.of(values, targets)
    accepts, rejects = trials.rates(np.arange(len(values)))
    edges = np.linspace(values.min(), values.max(), BINS + 1)
    return {
        "eer": equal_error_rate(accepts, rejects),
        "det": _thinned(accepts, rejects),
        "histogram": {
            "edges": [round(float(each), 4) for each in edges],
            "targets": np.histogram(values[targets], edges)[0].tolist(),
            "impostors": np.histogram(values[~targets], edges)[0].tolist(),
        },
    }


def _thinned(accepts: np.ndarray, rejects: np.ndarray) -> list[Json]:
    inside = np.flatnonzero((accepts > LEAST) & (accepts < 1 - LEAST) & (rejects > LEAST) & (rejects < 1 - LEAST))
    step = max(1, len(inside) // MOST_POINTS)
    return [[round(float(accepts[row]), 6), round(float(rejects[row]), 6)] for row in inside[::step]]

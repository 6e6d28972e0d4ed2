"""Trials of a detector, such as speaker verification: equal error rate and minimum detection cost.

Both are read off the curve of false accepts against false rejects; trials with equal scores are accepted together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Metric, Score
from attune.scoring import bootstrap

EER = Metric("eer", "%", False, "Equal error rate: where as many target trials are rejected as impostors accepted.")
MIN_DCF = Metric("min_dcf", "", False, "Minimum detection cost at a target prior of 0.01; 1 for a useless system.")
TARGET_PRIOR = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Trials by falling score: which are target trials, and where each group of equal scores ends."""

    order: NDArray[np.int64]
    is_target: NDArray[np.bool_]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, scores: NDArray[np.float64], is_target: NDArray[np.bool_]) -> Trials:
        """Sort trials once; resamples of them are then counted in their order."""
        order = np.argsort(-scores, kind="stable")
        ordered = scores[order]
        ends = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
        return cls(order, is_target[order], ends)

    def rates(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """False accepts and false rejects, both falling from or rising to 1, of the trials in `rows`."""
        return self.weighted_rates(np.bincount(rows, minlength=len(self.order)))

    def weighted_rates(self, weights: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same of trials that count so many times each."""
        weights = weights[self.order]
        targets, impostors = weights * self.is_target, weights * ~self.is_target
        if not targets.any() or not impostors.any():
            nothing = np.full(1, math.nan)
            return nothing, nothing
        accepts = np.concatenate([[0], np.cumsum(impostors)[self.ends]]) / impostors.sum()
        rejects = 1 - np.concatenate([[0], np.cumsum(targets)[self.ends]]) / targets.sum()
        return accepts, rejects

    def eer_threshold(self, scores: NDArray[np.float64]) -> float:
        """The score from which on trials are accepted where both rates are about equal."""
        accepts, rejects = self.weighted_rates(np.ones(len(self.order), np.int64))
        place = int(np.argmax(rejects <= accepts))
        return float(scores[self.order[self.ends[max(place - 1, 0)]]])


def equal_error_rate(accepts: NDArray[np.float64], rejects: NDArray[np.float64]) -> float:
    """In percent, where the two rates cross, interpolated between two thresholds; NaN without both kinds of trials."""
    gaps = rejects - accepts  # from 1 to -1
    if math.isnan(gaps[0]):
        return math.nan
    place = int(np.argmax(gaps <= 0))
    part = gaps[place - 1] / (gaps[place - 1] - gaps[place])
    return 100 * float(accepts[place - 1] + part * (accepts[place] - accepts[place - 1]))


def min_detection_cost(
    accepts: NDArray[np.float64], rejects: NDArray[np.float64], prior: float = TARGET_PRIOR
) -> float:
    """The lowest cost over all thresholds, both errors costing 1, as a part of the cost of not looking at all."""
    return float((prior * rejects + (1 - prior) * accepts).min() / min(prior, 1 - prior))


def score_trials(scores: Sequence[float], is_target: Sequence[bool], names: Sequence[str]) -> dict[str, Score]:
    """EER and minDCF of trials with their 95 % intervals; `names` are the trials' unique names."""
    trials = Trials.of(np.array(scores, np.float64), np.array(is_target, np.bool_))
    return {
        EER.name: bootstrap.statistic(EER, lambda rows: equal_error_rate(*trials.rates(rows)), names),
        MIN_DCF.name: bootstrap.statistic(MIN_DCF, lambda rows: min_detection_cost(*trials.rates(rows)), names),
    }

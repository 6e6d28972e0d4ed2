"""Scores as probabilities: logistic calibration and fusion, and how well probabilities are calibrated.

A fusion is log-odds = Σ weight × score + offset, fitted on trials whose answer is known by minimizing the cross-entropy
at a prior, as in "Application-independent evaluation of speaker detection" (2006). What comes out is a log-likelihood
ratio.
"""

# N trials, S systems
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.metrics import Metric, Score
from attune.scoring import bootstrap

CLLR = Metric("cllr", "", False, "Cost of log-likelihood ratios in bits, over all priors; 1 for a useless system.")
MIN_CLLR = Metric("min_cllr", "", False, "Cllr after the best monotonic calibration of these scores.")
BINS = 15
RIDGE = 1e-6  # keeps weights finite where the scores separate the answers exactly
MOST_STEPS = 200

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LogisticFusion:
    """Weights of the systems' scores and an offset."""

    weights: tuple[float, ...]
    offset: float
    prior: float = 0.5  # at which it was fitted

    def apply(self, scores: Floats) -> Floats:
        """Log-likelihood ratios (N,) of scores (N, S)."""
        fused: Floats = scores @ np.array(self.weights) + self.offset
        return fused


def fit_fusion(scores: Floats, is_target: Bools, prior: float = 0.5) -> LogisticFusion:
    """The fusion with the lowest prior-weighted cross-entropy on scores (N, S), by Newton's method."""
    if is_target.all() or not is_target.any():
        raise DataError("Calibration needs trials of both kinds, right and wrong. Add more to --fit.")
    scale = np.maximum(scores.std(0), 1e-12)
    inputs = np.column_stack([(scores - scores.mean(0)) / scale, np.ones(len(scores))])
    shares = np.where(is_target, prior / is_target.sum(), (1 - prior) / (~is_target).sum())
    shift = math.log(prior / (1 - prior))
    found = np.zeros(inputs.shape[1])
    for _ in range(MOST_STEPS):
        step = _newton_step(inputs, is_target, shares, shift, found)
        found = found - step
        if np.abs(step).max() < 1e-10:
            break
    weights = found[:-1] / scale
    return LogisticFusion(tuple(weights.tolist()), float(found[-1] - weights @ scores.mean(0)), prior)


def _newton_step(inputs: Floats, is_target: Bools, shares: Floats, shift: float, found: Floats) -> Floats:
    chance = _sigmoid(inputs @ found + shift)
    gradient = inputs.T @ (shares * (chance - is_target)) + RIDGE * found
    curvature = (inputs.T * (shares * chance * (1 - chance))) @ inputs + RIDGE * np.eye(len(found))
    step = np.linalg.solve(curvature, gradient)
    step *= min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))  # far from the optimum, the curvature may vanish
    return np.asarray(step, np.float64)


def _sigmoid(values: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-np.clip(values, -500, 500)))
    return chance


def cllr(ratios: Floats, is_target: Bools) -> float:
    """The cost of log-likelihood ratios (natural logarithm), in bits; NaN without both kinds of trials."""
    if is_target.all() or not is_target.any():
        return math.nan
    targets, others = ratios[is_target], ratios[~is_target]
    cost = np.logaddexp(0, -targets).mean() + np.logaddexp(0, others).mean()
    return float(cost / (2 * math.log(2)))


def min_cllr(scores: Floats, is_target: Bools) -> float:
    """The cost after the best monotonic calibration, found by pooling adjacent violators."""
    if is_target.all() or not is_target.any():
        return math.nan
    chance = isotonic(scores, is_target)
    with np.errstate(divide="ignore"):
        odds = np.log(chance) - np.log1p(-chance) - math.log(is_target.sum() / (~is_target).sum())
    return cllr(odds, is_target)


def isotonic(scores: Floats, is_target: Bools) -> Floats:
    """For each trial, the chance of a target that rises with the score and fits the trials best."""
    order = np.argsort(scores, kind="stable")
    values, first, counts = np.unique(scores[order], return_index=True, return_counts=True)
    sums = np.add.reduceat(is_target[order].astype(np.float64), first)
    pools: list[list[float]] = []  # sum, count, distinct scores
    for total, count in zip(sums, counts, strict=True):
        pools.append([float(total), float(count), 1.0])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            last = pools.pop()
            pools[-1] = [one + other for one, other in zip(pools[-1], last, strict=True)]
    levels = np.repeat([total / count for total, count, _ in pools], [int(size) for *_, size in pools])
    found: Floats = levels[np.searchsorted(values, scores)]
    return found


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Predictions of similar confidence: their mean confidence, and the share of them that is right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def reliability(confidences: Floats, is_right: Bools, bins: int = BINS) -> list[ReliabilityBin]:
    """The bins of a reliability diagram, of equal width; empty ones are left out."""
    places = np.minimum((confidences * bins).astype(np.int64), bins - 1)
    return [
        ReliabilityBin(
            number / bins,
            (number + 1) / bins,
            int(own.sum()),
            float(confidences[own].mean()),
            float(is_right[own].mean()),
        )
        for number in range(bins)
        if (own := places == number).any()
    ]


def expected_calibration_error(confidences: Floats, is_right: Bools, bins: int = BINS) -> float:
    """The mean distance of confidence and accuracy over the bins in percent, each by its size."""
    if not len(confidences):
        return math.nan
    parts = reliability(confidences, is_right, bins)
    return 100 * sum(each.count * abs(each.confidence - each.accuracy) for each in parts) / len(confidences)


def score_ratios(ratios: Floats, is_target: Bools, names: Sequence[str]) -> dict[str, Score]:
    """Cllr and its minimum with their 95 % intervals; `names` are the trials' unique names."""
    return {
        metric.name: bootstrap.statistic(metric, lambda rows, cost=cost: cost(ratios[rows], is_target[rows]), names)  # type: ignore[misc]
        for metric, cost in ((CLLR, cllr), (MIN_CLLR, min_cllr))
    }

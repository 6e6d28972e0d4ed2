"""95 % bootstrap intervals: of a ratio of sums, of a mean, and of any statistic over resampled units.

The result depends on the units alone, not on their order, and is the same every time. Above `BLOCKS` utterances,
random blocks of them are resampled instead of single ones for ratios and means: the interval comes out as wide to
within a few percent of its width, and a hundred thousand utterances cost little more than a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Metric, Score

RESAMPLES = 1000
BLOCKS = 1000
SEED = 17

Number = TypeVar("Number", np.int64, np.float64)


def percent(
    metric: Metric, numerators: Sequence[int] | NDArray[np.int64], denominators: Sequence[int] | NDArray[np.int64]
) -> Score:
    """100 × sum of numerators / sum of denominators, one of each per utterance; NaN when there are none."""
    pairs = np.array([numerators, denominators], np.int64)  # (2, n)
    if pairs.size == 0:
        return _nothing(metric)
    low, high = np.percentile(_ratio(_resampled_sums(pairs[:, np.lexsort(pairs)])), [2.5, 97.5])
    return Score(metric, float(_ratio(pairs.sum(axis=1))), float(low), float(high))


def mean(metric: Metric, values: Sequence[float] | NDArray[np.float64]) -> Score:
    """The mean of one value per utterance; NaN when there are none."""
    ordered = np.sort(np.array(values, np.float64))
    if ordered.size == 0:
        return _nothing(metric)
    if not np.isfinite(ordered).all():  # such as the SI-SDR of a perfect estimate: there is no interval
        return Score(metric, *[float(ordered.sum() / ordered.size)] * 3)
    sums = _resampled_sums(np.stack([ordered, np.ones_like(ordered)]))
    low, high = np.percentile(sums[0] / sums[1], [2.5, 97.5])
    return Score(metric, math.fsum(ordered) / ordered.size, float(low), float(high))


def statistic(metric: Metric, function: Callable[[NDArray[np.int64]], float], units: Sequence[str]) -> Score:
    """Any statistic: `function` computes it from the units at the given indices, which repeat in a resample.

    Units are named by unique ids (utterances, speakers, trial pairs) and resampled in the order of these names. A
    resample without a finite value, such as one without any target trial, is left out of the interval.
    """
    if not units:
        return _nothing(metric)
    order = np.array(sorted(range(len(units)), key=lambda index: units[index]), np.int64)
    rng = np.random.default_rng(SEED)
    found = [function(order[rng.integers(order.size, size=order.size)]) for _ in range(RESAMPLES)]
    known = [value for value in found if math.isfinite(value)]
    value = float(function(order))
    if not known:
        return Score(metric, value, math.nan, math.nan)
    low, high = np.percentile(known, [2.5, 97.5])
    return Score(metric, value, float(low), float(high))


def _nothing(metric: Metric) -> Score:
    return Score(metric, math.nan, math.nan, math.nan)


def _resampled_sums(pairs: NDArray[Number]) -> NDArray[Number]:
    """The sums (2, RESAMPLES) of columns drawn with replacement from pairs (2, n)."""
    rng = np.random.default_rng(SEED)
    units = _blocks(pairs, rng)  # (2, at most BLOCKS)
    draws = rng.integers(units.shape[1], size=(RESAMPLES, units.shape[1]))
    sums: NDArray[Number] = units.take(draws, axis=1).sum(axis=2)
    return sums


def _blocks(pairs: NDArray[Number], rng: np.random.Generator) -> NDArray[Number]:
    utterances = pairs.shape[1]
    if utterances <= BLOCKS:
        return pairs
    starts = np.arange(BLOCKS) * utterances // BLOCKS
    return np.add.reduceat(rng.permutation(pairs, axis=1), starts, axis=1)


def _ratio(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    # Only empty references give a denominator of 0; their insertions then count as against one token.
    ratio: NDArray[np.float64] = 100 * sums[0] / np.maximum(sums[1], 1)
    return ratio

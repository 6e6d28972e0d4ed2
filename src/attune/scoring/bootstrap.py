"""How sure a figure is: the 95 % bootstrap interval of a ratio of sums over utterances.

The result depends on the utterances alone, not on their order, and is the same every time. Above `BLOCKS` utterances,
random blocks of them are resampled instead of single ones: the interval comes out as wide to within a few percent of
its width, and a hundred thousand utterances cost little more than a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attune.types import Score

RESAMPLES = 1000
BLOCKS = 1000
SEED = 17


def percent(numerators: Sequence[int] | NDArray[np.int64], denominators: Sequence[int] | NDArray[np.int64]) -> Score:
    """100 × sum of numerators / sum of denominators, one of each per utterance; NaN when there are none."""
    pairs = np.array([numerators, denominators], np.int64)  # (2, n)
    if pairs.size == 0:
        return Score(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(SEED)
    units = _blocks(pairs[:, np.lexsort(pairs)], rng)  # (2, at most BLOCKS)
    draws = rng.integers(units.shape[1], size=(RESAMPLES, units.shape[1]))
    low, high = np.percentile(_ratio(units.take(draws, axis=1).sum(axis=2)), [2.5, 97.5])
    return Score(float(_ratio(pairs.sum(axis=1))), float(low), float(high))


def _blocks(pairs: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    utterances = pairs.shape[1]
    if utterances <= BLOCKS:
        return pairs
    starts = np.arange(BLOCKS) * utterances // BLOCKS
    return np.add.reduceat(rng.permutation(pairs, axis=1), starts, axis=1)


def _ratio(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    # Only empty references give a denominator of 0; their insertions then count as against one token.
    ratio: NDArray[np.float64] = 100 * sums[0] / np.maximum(sums[1], 1)
    return ratio

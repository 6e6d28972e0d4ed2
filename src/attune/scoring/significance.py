"""Whether one system is better than another on the same utterances, or only happened to be.

The paired bootstrap resamples utterances; MAPSSWE (Gillick and Cox, "Some statistical issues in the comparison of
speech recognition algorithms", ICASSP 1989) compares stretches between words that both have right; McNemar's test
counts the utterances that only one of them has right. All tests are two-sided. `holm` corrects for many at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attune.scoring.bootstrap import BLOCKS, SEED

RESAMPLES = 10_000
GOOD = 2  # words in a row that both systems have right end a stretch

Slots = list[tuple[int, int]]  # errors of both systems, by turns between and at reference words


class RateDifference(NamedTuple):
    """The second rate minus the first, with a 95 % interval and how probable so large a one is by chance."""

    value: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    first: NDArray[np.int64], second: NDArray[np.int64], sizes: NDArray[np.int64], resamples: int = RESAMPLES
) -> RateDifference:
    """The difference of two rates in percent, such as WER: errors of both by utterance, over the same words."""
    if not len(sizes):
        return RateDifference(math.nan, math.nan, math.nan, math.nan)
    random = np.random.default_rng(SEED)
    units = _blocks(np.stack([second - first, sizes]), random)
    differences = np.concatenate([_resampled(units, random, many) for many in _shares(resamples, units.shape[1])])
    low, high = np.percentile(differences, [2.5, 97.5])
    tail = min((differences <= 0).mean(), (differences >= 0).mean())
    value = 100 * float(units[0].sum()) / max(1, int(units[1].sum()))
    return RateDifference(value, float(low), float(high), min(1.0, max(2 * float(tail), 1 / resamples)))


def _blocks(pairs: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    """Random blocks of very many utterances, as `bootstrap` has them."""
    if pairs.shape[1] <= BLOCKS:
        return pairs
    starts = np.arange(BLOCKS) * pairs.shape[1] // BLOCKS
    return np.add.reduceat(random.permutation(pairs, axis=1), starts, axis=1)


def _shares(resamples: int, units: int) -> Iterator[int]:
    """Resamples in portions that fit into memory."""
    portion = max(1, 2_000_000 // units)
    for start in range(0, resamples, portion):
        yield min(portion, resamples - start)


def _resampled(units: NDArray[np.int64], random: np.random.Generator, many: int) -> NDArray[np.float64]:
    draws = random.integers(units.shape[1], size=(many, units.shape[1]))
    sums = units.take(draws, axis=1).sum(axis=2)
    found: NDArray[np.float64] = 100 * sums[0] / np.maximum(sums[1], 1)
    return found


def stretches(slots: Slots) -> Iterator[tuple[int, int]]:
    """The errors of both systems in each stretch of an utterance that has any.

    A stretch ends where both systems have two words in a row right. `slots` has, by turns, what was inserted before a
    word and what happened to that word; the last slot is what was inserted at the end.
    """
    first = second = good = 0
    for place, (one, other) in enumerate(slots):
        first, second = first + one, second + other
        if one or other:
            good = 0
        elif place % 2:
            good += 1
        if good == GOOD and (first or second):
            yield first, second
            first = second = 0
    if first or second:
        yield first, second


def mapsswe(segments: Sequence[tuple[int, int]]) -> float:
    """The matched-pairs test over stretches with errors; 1 where the systems differ in none of them."""
    differences = np.array([first - second for first, second in segments], np.float64)
    if len(differences) < 2 or not differences.any():
        return 1.0
    spread = differences.std(ddof=1)
    if spread == 0:
        return 0.0
    return math.erfc(abs(float(differences.mean())) / (float(spread) / math.sqrt(len(differences))) / math.sqrt(2))


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact test of how many utterances only the one and only the other system has right."""
    total, fewer = only_first + only_second, min(only_first, only_second)
    if total == 0:
        return 1.0
    logs = [_log_choose(total, each) - total * math.log(2) for each in range(fewer + 1)]
    return min(1.0, 2 * math.fsum(math.exp(each) for each in logs))


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """The same p values, corrected by Holm's method for there being so many of them."""
    adjusted = [math.nan] * len(ps)
    order = sorted((each for each in range(len(ps)) if not math.isnan(ps[each])), key=lambda each: ps[each])
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted

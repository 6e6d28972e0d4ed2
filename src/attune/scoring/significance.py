"""Whether one system is better than another on the same utterances, or only happened to be.

The paired bootstrap resamples utterances, or speakers for trials of verification; MAPSSWE (Gillick and Cox, "Some
statistical issues in the comparison of speech recognition algorithms", ICASSP 1989) compares stretches between words
that both have right; McNemar's test counts the utterances that only one of them has right. All tests are two-sided.
`holm` corrects for many at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attune.scoring.bootstrap import BLOCKS, SEED

RESAMPLES = 10_000
STATISTIC_RESAMPLES = 2000  # each of which is computed anew
GOOD = 2  # words in a row that both systems have right end a stretch

Counts = NDArray[np.int64] | NDArray[np.float64]
Statistic = Callable[[NDArray[np.int64]], float]  # of weighted units
Slots = list[tuple[int, int]]  # errors of both systems, by turns between and at reference words


class RateDifference(NamedTuple):
    """The second rate minus the first, with a 95 % interval and how probable so large a one is by chance."""

    value: float
    low: float
    high: float
    p: float

    @property
    def negated(self) -> RateDifference:
        """The same where more is better and errors were counted."""
        return RateDifference(0.0 - self.value, 0.0 - self.high, 0.0 - self.low, self.p)  # no negative zeros


def paired_bootstrap(
    first: Counts, second: Counts, sizes: NDArray[np.int64], resamples: int = RESAMPLES, scale: float = 100.0
) -> RateDifference:
    """The difference of two rates in percent, such as WER: errors of both by utterance, over the same words.

    With a scale of 1 and sizes of 1 it is the difference of two means.
    """
    if not len(sizes):
        return RateDifference(math.nan, math.nan, math.nan, math.nan)
    random = np.random.default_rng(SEED)
    units = _blocks(np.stack([second - first, sizes]), random)
    portions = [_resampled(units, random, many, scale) for many in _shares(resamples, units.shape[1])]
    value = scale * float(units[0].sum()) / max(1, int(units[1].sum()))
    return _difference(value, np.concatenate(portions), len(sizes))


def paired_statistic(
    first: Statistic, second: Statistic, draws: Callable[[np.random.Generator], NDArray[np.int64]], everything: int
) -> RateDifference:
    """The difference of any statistic of weighted units; `draws` makes the weights of a resample, the same for both."""
    random = np.random.default_rng(SEED)
    weights = [draws(random) for _ in range(STATISTIC_RESAMPLES)]
    found = np.array([second(each) - first(each) for each in weights])
    whole = np.ones(everything, np.int64)
    return _difference(second(whole) - first(whole), found[np.isfinite(found)], everything)


def utterance_weights(count: int) -> Callable[[np.random.Generator], NDArray[np.int64]]:
    """Resamples of so many utterances, as weights of them."""

    def draw(random: np.random.Generator) -> NDArray[np.int64]:
        weights: NDArray[np.int64] = np.bincount(random.integers(count, size=count), minlength=count)
        return weights

    return draw


def speaker_weights(
    speakers: Sequence[tuple[str, str]],
) -> Callable[[np.random.Generator], NDArray[np.int64]]:
    """Resamples of speakers, as weights of the trials between them: trials of one speaker are not independent."""
    names = {name: number for number, name in enumerate(sorted({each for pair in speakers for each in pair}))}
    one, other = np.array([[names[name] for name in pair] for pair in speakers], np.int64).T

    def draw(random: np.random.Generator) -> NDArray[np.int64]:
        times = np.bincount(random.integers(len(names), size=len(names)), minlength=len(names))
        weights: NDArray[np.int64] = np.where(one == other, times[one], times[one] * times[other])
        return weights

    return draw


def _difference(value: float, resampled: NDArray[np.float64], units: int) -> RateDifference:
    """With what it is probable by chance: certainly, where a single unit is all there is."""
    if not len(resampled):
        return RateDifference(value, math.nan, math.nan, math.nan)
    low, high = np.percentile(resampled, [2.5, 97.5])
    tail = min((resampled <= 0).mean(), (resampled >= 0).mean())
    p = min(1.0, max(2 * float(tail), 1 / len(resampled))) if units > 1 else 1.0
    return RateDifference(value, float(low), float(high), p)


def _blocks(pairs: Counts, random: np.random.Generator) -> Counts:
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


def _resampled(units: Counts, random: np.random.Generator, many: int, scale: float) -> NDArray[np.float64]:
    draws = random.integers(units.shape[1], size=(many, units.shape[1]))
    sums = units.take(draws, axis=1).sum(axis=2)
    found: NDArray[np.float64] = scale * sums[0] / np.maximum(sums[1], 1)
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
    """The matched-pairs test over stretches with errors; 1 where the systems differ in none of them.

    Where they differ in all of them by the same, nothing says how far differences spread: the sign test is left.
    """
    differences = np.array([first - second for first, second in segments], np.float64)
    if len(differences) < 2 or not differences.any():
        return 1.0
    spread = differences.std(ddof=1)
    if spread == 0:
        return 2.0 ** (1 - len(differences))
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

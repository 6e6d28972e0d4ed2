"""N-gram language models by interpolated, modified Kneser–Ney smoothing, as KenLM's lmplz estimates them.

Counts are sorted arrays: the n-grams of an order are numbered, and one of the next order is a pair of its context's
number and its last word. Chen and Goodman, An Empirical Study of Smoothing Techniques for Language Modeling, 1998;
Heafield et al., Scalable Modified Kneser-Ney Language Model Estimation, ACL 2013.
"""

# N tokens of the text, G n-grams of an order
from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
SPECIAL = (UNKNOWN, BEGIN, END)  # words 0, 1 and 2
NEVER = -99.0  # how the format writes probability 0, base 10
FALLBACK = (0.0, 0.5, 1.0, 1.5)  # discounts where the text is too small or too even to estimate them; as in KenLM


@dataclass(frozen=True, slots=True)
class NGramOrder:
    """The n-grams of one order, sorted by their keys: context × words + last word."""

    keys: Ints  # (G,)
    contexts: Ints  # (G,) their numbers in the order below
    words: Ints  # (G,) the last ones
    log_probs: Floats  # (G,) base 10
    backoffs: Floats  # (G,) base 10


@dataclass(frozen=True, slots=True)
class NGramModel:
    """Words by number, and the n-grams of each order from 1 on."""

    words: tuple[str, ...]
    orders: tuple[NGramOrder, ...]
    discounts: tuple[tuple[float, ...], ...]  # of each order: for counts of 1, 2, and 3 or more
    guessed: tuple[int, ...] = ()  # orders whose discounts could not be estimated


@dataclass(frozen=True, slots=True)
class _Counts:
    """The n-grams of one order as they were counted."""

    keys: Ints  # (G,)
    contexts: Ints  # (G,)
    words: Ints  # (G,)
    suffixes: Ints  # (G,) the numbers of the n-grams without the first word, in the order below
    raw: Ints  # (G,) how often each stands in the text
    adjusted: Ints  # (G,) after how many different words; of the highest order and after <s>, how often
    is_first: NDArray[np.bool_]  # (G,) whether each begins with <s>


def estimate(sentences: Iterable[Sequence[str]], order: int, prune: Sequence[int] = ()) -> NGramModel:
    """The model of some sentences of words or tokens.

    `prune` has a count for each order, from 1 on, the last for all further ones: n-grams that occur as often or less
    are left out. Single words stay.
    """
    thresholds = _thresholds(prune, order)
    names, ids, starts = _numbered(sentences)
    if len(names) == len(SPECIAL):
        raise DataError("No text to estimate n-grams from. Give a file with a sentence per line.")
    counts = _counted(ids, starts, len(names), order)
    return _smoothed(names, counts, thresholds)


def _thresholds(prune: Sequence[int], order: int) -> list[int]:
    wanted = list(prune)[:order] or [0]
    found = wanted + [wanted[-1]] * (order - len(wanted))
    if found[0] != 0 or found != sorted(found):
        raise DataError(f"prune: expected counts that begin with 0 and never fall, such as 0 0 1; found {wanted}.")
    return found


def _numbered(sentences: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], Ints, Ints]:
    """The words, the text as numbers with <s> and </s> around every sentence, and where each sentence's <s> is."""
    numbers: dict[str, int] = {name: number for number, name in enumerate(SPECIAL)}
    ids, starts = array("q"), array("q")
    for sentence in sentences:
        starts.append(len(ids))
        ids.append(1)
        ids.extend(numbers.setdefault(word, len(numbers)) for word in sentence if word not in SPECIAL)
        ids.append(2)
    return tuple(numbers), np.frombuffer(ids, np.int64), np.frombuffer(starts, np.int64)


def _counted(ids: Ints, starts: Ints, size: int, order: int) -> list[_Counts]:
    """The n-grams of every order with their counts; single words have their own numbers."""
    every, none = np.arange(size), np.zeros(size, np.int64)
    raw = np.bincount(ids, minlength=size)
    found = [_Counts(every, none, every, none, raw, raw, every == 1)]
    ends = np.repeat(np.append(starts[1:], len(ids)), np.diff(np.append(starts, len(ids))))  # of each token's sentence
    numbers = ids  # of the n-gram that begins at each place
    for length in range(2, order + 1):
        places = np.flatnonzero(np.arange(len(ids)) + length <= ends)
        contexts, last = numbers[places], ids[places + length - 1]
        keys, first, inverse, raw = np.unique(
            contexts * size + last, return_index=True, return_inverse=True, return_counts=True
        )
        suffixes = numbers[places[first] + 1]
        found[-1] = _adjusted(found[-1], suffixes)
        found.append(_Counts(keys, contexts[first], last[first], suffixes, raw, raw, ids[places[first]] == 1))
        numbers = np.full(len(ids), -1)
        numbers[places] = inverse
    return found


def _adjusted(counts: _Counts, suffixes: Ints) -> _Counts:
    """The counts of the order below some n-grams that end in these: after how many words each was seen."""
    after = np.bincount(suffixes, minlength=len(counts.keys))
    return replace(counts, adjusted=np.where(counts.is_first, counts.raw, after))


def _smoothed(names: tuple[str, ...], counts: Sequence[_Counts], thresholds: Sequence[int]) -> NGramModel:
    """Probabilities from counts, each order interpolated with the one below; words with a uniform distribution."""
    lower, kept = np.full(1, 1 / (len(names) - 1)), np.zeros(1, np.int64)  # <s> is never predicted
    orders: list[NGramOrder] = []
    discounts: list[tuple[float, ...]] = []
    guessed: list[int] = []
    for each, threshold in zip(counts, thresholds, strict=True):
        if not orders:  # <s> is given, and the unknown word has not been seen
            each = replace(each, adjusted=each.adjusted * (each.words > 1))
        own, is_estimated = _discounts(each.adjusted)
        is_kept = (each.raw > threshold) | (len(orders) == 0)
        probs, gammas = _interpolated(each, np.array(own), is_kept, lower)
        if orders:
            orders[-1] = replace(orders[-1], backoffs=np.log10(gammas[kept >= 0]))
        orders.append(_order(each, kept, probs, is_kept, len(names)))
        kept, lower = np.where(is_kept, np.cumsum(is_kept) - 1, -1), probs
        discounts.append(own[1:])
        guessed += [] if is_estimated else [len(orders)]
    orders[0].log_probs[1] = NEVER
    return NGramModel(names, tuple(orders), tuple(discounts), tuple(guessed))


def _discounts(adjusted: Ints) -> tuple[tuple[float, ...], bool]:
    """What to take off counts of 0, 1, 2, and 3 or more, and whether the counts say so."""
    times = np.bincount(np.minimum(adjusted, 5), minlength=6)[:5].tolist()  # how many n-grams occur so often
    if not all(times[1:4]):
        return FALLBACK, False
    share = times[1] / (times[1] + 2 * times[2])
    found = [count - (count + 1) * share * times[count + 1] / times[count] for count in (1, 2, 3)]
    if any(not 0 < discount <= count for count, discount in enumerate(found, start=1)):
        return FALLBACK, False
    return (0.0, *found), True


def _interpolated(
    counts: _Counts, discounts: Floats, is_kept: NDArray[np.bool_], lower: Floats
) -> tuple[Floats, Floats]:
    """The probability of each n-gram, and the weight of the order below after each context."""
    off = np.where(is_kept, discounts[np.minimum(counts.adjusted, 3)], counts.adjusted)  # pruned: all of it
    totals = np.bincount(counts.contexts, counts.adjusted, minlength=len(lower))
    gammas = np.bincount(counts.contexts, off, minlength=len(lower)) / np.maximum(totals, 1)
    gammas[totals == 0] = 1.0  # nothing ever followed, such as after </s>
    own = (counts.adjusted - off) / np.maximum(totals, 1)[counts.contexts]
    return own + gammas[counts.contexts] * lower[counts.suffixes], gammas


def _order(counts: _Counts, kept: Ints, probs: Floats, is_kept: NDArray[np.bool_], size: int) -> NGramOrder:
    contexts, words = kept[counts.contexts[is_kept]], counts.words[is_kept]
    return NGramOrder(contexts * size + words, contexts, words, np.log10(probs[is_kept]), np.zeros(len(words)))

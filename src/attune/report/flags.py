"""What to look at first: utterances whose hypothesis or reference is probably broken, each kind under a name."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

FLAGS = {
    "absent": "No prediction: the audio could not be read.",
    "empty": "The hypothesis is empty, the reference is not.",
    "runaway": "The hypothesis repeats itself, or is much longer than the reference: probably hallucinated.",
    "suspect": "High confidence, many errors: the reference may not match the audio.",
    "oov": "The reference has words that are not in the training texts.",
}
LONGER = 2.0  # times the reference
MOST_EXTRA = 5  # words
REPEATS = 4  # in a row
LONGEST_REPEAT = 4  # words
SURE = 0.75  # part of all hypotheses that are less probable
WRONG = 0.5  # errors in a reference word
FEWEST = 3  # words of a reference that can be a suspect


@dataclass(frozen=True, slots=True)
class Judged:
    """An utterance as its flags see it: words of reference and hypothesis, errors, and log-probability."""

    reference: Sequence[str]
    hypothesis: Sequence[str] | None
    errors: int
    score: float | None


def flags_of(rows: Sequence[Judged], vocabulary: Collection[str] | None) -> list[int]:
    """The flags of each row as bits, in the order of FLAGS; `vocabulary` has the words of the training texts."""
    bound = _sure_bound(rows)
    bits = {name: 1 << place for place, name in enumerate(FLAGS)}
    return [sum(bits[name] for name in _names(row, bound, vocabulary)) for row in rows]


def _names(row: Judged, bound: float, vocabulary: Collection[str] | None) -> Iterator[str]:
    if vocabulary is not None and any(word not in vocabulary for word in row.reference):
        yield "oov"
    if row.hypothesis is None:
        yield "absent"
        return
    if row.reference and not row.hypothesis:
        yield "empty"
    if _runs_away(row.reference, row.hypothesis):
        yield "runaway"
    elif _is_suspect(row, bound):
        yield "suspect"


def _runs_away(reference: Sequence[str], hypothesis: Sequence[str]) -> bool:
    if len(hypothesis) >= max(LONGER * len(reference), len(reference) + MOST_EXTRA):
        return True
    return repeats(hypothesis) and not repeats(reference)


def repeats(words: Sequence[str]) -> bool:
    """Whether the same few words come several times in a row."""
    for size in range(1, LONGEST_REPEAT + 1):
        run = 0
        for place in range(size, len(words)):
            run = run + 1 if words[place] == words[place - size] else 0
            if run >= size * (REPEATS - 1):
                return True
    return False


def _sure_bound(rows: Sequence[Judged]) -> float:
    known = [each for row in rows if (each := _mean_score(row)) is not None]
    return float(np.quantile(known, SURE)) if known else math.inf


def _mean_score(row: Judged) -> float | None:
    return row.score / len(row.hypothesis) if row.hypothesis and row.score is not None else None


def _is_suspect(row: Judged, bound: float) -> bool:
    sure = _mean_score(row)
    if sure is None or len(row.reference) < FEWEST:
        return False
    return sure >= bound and row.errors >= WRONG * len(row.reference)

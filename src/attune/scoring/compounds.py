"""Word errors with compounds merged, as the Open ASR Leaderboard counts them: "white paper" is "whitepaper".

Adjacent words of either side that spell one word of the other match it at no cost. The number of errors is the least
possible; reference words are counted as they stand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from attune.metrics import Metric, Score
from attune.scoring import bootstrap

COMPOUND_WER = Metric("compound_wer", "%", False, "Word error rate that ignores spaces in compounds.")


def count_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """The fewest edits between two texts as words, compounds merged."""
    left, right = _compounds(reference, hypothesis), _compounds(hypothesis, reference)
    if not left and not right:
        return Levenshtein.distance(reference, hypothesis)
    return _merged_distance(reference, hypothesis, left, right)


def compound_wer(references: Sequence[str], hypotheses: Sequence[str | None]) -> Score:
    """The leaderboard's word error rate of texts in percent with its 95 % interval; an absent text is not scored."""
    pairs = [(one.split(), two.split()) for one, two in zip(references, hypotheses, strict=True) if two is not None]
    errors: NDArray[np.int64] = np.array([count_errors(*pair) for pair in pairs], np.int64)
    return bootstrap.percent(COMPOUND_WER, errors, np.array([len(one) for one, _ in pairs], np.int64))


def _compounds(words: Sequence[str], other: Sequence[str]) -> dict[int, list[tuple[int, str]]]:
    """Runs of words that spell a word of the other side: where each ends, how many words it has, and that word."""
    targets = set(other)
    longest = max(map(len, targets), default=0)
    found: dict[int, list[tuple[int, str]]] = {}
    for first in range(len(words)):
        spelled = words[first]
        for last in range(first + 1, len(words)):
            spelled += words[last]
            if len(spelled) > longest:
                break
            if spelled in targets:
                found.setdefault(last + 1, []).append((last + 1 - first, spelled))
    return found


def _merged_distance(
    reference: Sequence[str],
    hypothesis: Sequence[str],
    left: dict[int, list[tuple[int, str]]],
    right: dict[int, list[tuple[int, str]]],
) -> int:
    rows = [list(range(len(hypothesis) + 1))]
    for place, word in enumerate(reference, 1):
        above, row = rows[-1], [place]
        for column, other in enumerate(hypothesis, 1):
            best = min(above[column - 1] + (word != other), above[column] + 1, row[column - 1] + 1)
            for count, spelled in left.get(place, ()):
                if spelled == other:
                    best = min(best, rows[place - count][column - 1])
            for count, spelled in right.get(column, ()):
                if spelled == word:
                    best = min(best, above[column - count])
            row.append(best)
        rows.append(row)
    return rows[-1][-1]

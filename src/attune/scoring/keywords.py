"""How well expected phrases are found: recall, precision and their harmonic mean, by occurrence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from attune.metrics import Metric, Prediction, Scores
from attune.scoring import bootstrap
from attune.scoring.texts import texts_of

Words = tuple[str, ...]

RECALL = Metric("keyword_recall", "%", True, "Share of the expected phrases in the references that were found.")
PRECISION = Metric("keyword_precision", "%", True, "Share of the expected phrases in the hypotheses that are right.")
F1 = Metric("keyword_f1", "%", True, "Harmonic mean of keyword recall and precision.")


def score_keywords(
    predictions: Sequence[Prediction], expected: Sequence[Sequence[str]], normalize: Callable[[str], str]
) -> Scores:
    """Scores of the phrases that were expected in each utterance, as whole words of the normalized texts.

    In an utterance, a phrase is found as often as both texts have it. Case does not count.
    """
    references, hypotheses = texts_of(predictions)

    def words_of(text: str) -> tuple[str, ...]:
        return tuple(normalize(text).casefold().split())

    rows = [
        _tally({words_of(phrase) for phrase in phrases} - {()}, words_of(reference), words_of(hypothesis))
        for reference, hypothesis, phrases in zip(references, hypotheses, expected, strict=True)
        if hypothesis is not None
    ]
    found, wanted, emitted = np.array(rows, np.int64).reshape(-1, 3).T
    scores = [
        bootstrap.percent(RECALL, found, wanted),
        bootstrap.percent(PRECISION, found, emitted),
        bootstrap.percent(F1, 2 * found, wanted + emitted),
    ]
    tally = f"{found.sum()} of {wanted.sum()} found, {(emitted - found).sum()} false"
    return Scores({each.metric.name: each for each in scores}, {}, {"phrases": tally})


def _tally(keys: Iterable[Words], reference: Words, hypothesis: Words) -> tuple[int, int, int]:
    """How many occurrences were found, wanted and emitted."""
    counts = [(_occurrences(key, reference), _occurrences(key, hypothesis)) for key in keys]
    return sum(map(min, counts)), sum(wanted for wanted, _ in counts), sum(emitted for _, emitted in counts)


def _occurrences(key: Words, words: Words) -> int:
    """How often some words stand in a text, one after the other."""
    return sum(words[start : start + len(key)] == key for start in range(len(words) - len(key) + 1))

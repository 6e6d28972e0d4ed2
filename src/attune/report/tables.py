"""Scores as a plain-text table: figures with their intervals, then the counts they come from."""

from __future__ import annotations

from collections.abc import Sequence

from attune.types import Score, Scores


def scores_table(columns: Sequence[Scores]) -> str:
    """One column per `Scores` of the same utterances, headed by its normalizer."""
    rows = [["", *(_heading(scores) for scores in columns)]]
    rows += [[name.upper(), *(_figure(scores.values[name]) for scores in columns)] for name in columns[0].values]
    rows += [[name, *(f"{scores.counts[name]:,}" for scores in columns)] for name in columns[0].counts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def figure(score: Score) -> str:
    """A score for a sentence: 12.34 % [10.10, 14.60]."""
    return f"{score.value:.2f} % [{score.low:.2f}, {score.high:.2f}]"

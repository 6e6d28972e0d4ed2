"""Scores as a plain-text table: figures with their 95 % intervals, then the counts they come from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from attune.types import Score, Scores

ABBREVIATIONS = ("wer", "cer", "ser")


def scores_table(columns: Mapping[str, Scores]) -> str:
    """One column for each `Scores`, under its heading: a test set, or before and after."""
    figures = _union(scores.values for scores in columns.values())
    counts = _union(scores.counts for scores in columns.values())
    rows = [["", *columns]]
    rows += [[_label(name), *(_figure_of(scores, name) for scores in columns.values())] for name in figures]
    rows += [["normalizer", *(scores.normalizer for scores in columns.values())]]
    rows += [[name, *(_count_of(scores, name) for scores in columns.values())] for name in counts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def scores_json(scores: Scores) -> dict[str, object]:
    """Scores as plain data for programs; a figure that nothing was scored for is null, as JSON has no NaN."""
    figures = {name: None if math.isnan(score.value) else asdict(score) for name, score in scores.values.items()}
    return {"scores": figures, "counts": dict(scores.counts), "normalizer": scores.normalizer}


def figure(score: Score) -> str:
    """A score with its interval: 12.34 % [10.10, 14.60]."""
    return "nothing scored" if math.isnan(score.value) else f"{score.value:.2f} % [{score.low:.2f}, {score.high:.2f}]"


def _union(groups: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in group))


def _label(name: str) -> str:
    return " ".join(word.upper() if word in ABBREVIATIONS else word for word in name.split("_"))


def _figure_of(scores: Scores, name: str) -> str:
    return figure(scores.values[name]) if name in scores.values else ""


def _count_of(scores: Scores, name: str) -> str:
    return f"{scores.counts[name]:,}" if name in scores.counts else ""


def _line(row: list[str], widths: list[int]) -> str:
    name, *cells = row
    padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
    return "  ".join([name.ljust(widths[0]), *padded]).rstrip()

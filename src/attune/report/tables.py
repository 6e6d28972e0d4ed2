"""Scores as text and as plain data: values with unit and 95 % interval, the conditions they hold under, the counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from attune.metrics import Metric, Score, Scores

PLAIN_WORDS = ("raw",)  # short, and no abbreviations
LONGEST_ABBREVIATION = 3
LONGER_ABBREVIATIONS = ("bleu", "mtwv", "stoi", "pesq")
MOST_COLUMNS = 3  # of a table with a column for each set
WIDE = 10.0  # an interval of which decimals say nothing


def scores_table(sets: Mapping[str, Scores], has_counts: bool = True) -> str:
    """The scores of test sets, or before and after: a column for each, or a row for each when there are many."""
    if len(sets) > MOST_COLUMNS:
        return sets_table(sets)
    return aligned(_rows(sets, has_counts))


def scores_html(title: str, sets: Mapping[str, Scores]) -> str:
    """A short table for a notebook."""
    head, *rows = _rows(sets, has_counts=False)
    lines = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>"


def _rows(sets: Mapping[str, Scores], has_counts: bool) -> list[list[str]]:
    metrics = _union(scores.values for scores in sets.values())
    conditions = _union(scores.conditions for scores in sets.values())
    counts = _union(scores.counts for scores in sets.values()) if has_counts else []
    rows = [["score [95 % CI]", *sets]]
    rows += [[name, *(_value_of(scores, name) for scores in sets.values())] for name in metrics]
    rows += [[name, *(scores.conditions.get(name, "") for scores in sets.values())] for name in conditions]
    rows += [[name, *(_count_of(scores, name) for scores in sets.values())] for name in counts]
    return rows


def sets_table(sets: Mapping[str, Scores]) -> str:
    """A row for each set: its scores, the first with an interval, and the conditions that differ."""
    metrics = _union(without_repeats(scores.values, scores.conditions) for scores in sets.values())
    conditions = _union(scores.conditions for scores in sets.values())
    rows = [["", *metrics, *conditions]]
    for name, scores in sets.items():
        first, *others = [scores.values.get(metric) for metric in metrics]
        values = [describe_score(first) if first else "", *(_plain_value(score) for score in others)]
        rows.append([name, *values, *(scores.conditions.get(condition, "") for condition in conditions)])
    return aligned(rows)


def groups_table(groups: Mapping[str, Scores], heading: str) -> str:
    """One row for each group, the worst first by its first metric; groups in which nothing was scored come last."""
    names = without_repeats(_union(scores.values for scores in groups.values()), next(iter(groups.values())).conditions)
    shown = [name for name in names if not name.startswith("raw_")]
    counts = _union(scores.counts for scores in groups.values())
    ordered = sorted(groups.items(), key=lambda item: _badness(item[1].values[names[0]]))
    rows = [[heading, *shown, *counts[-1:]]]
    for group, scores in ordered:
        rows.append([group, *(_value_of(scores, name) for name in shown), *(_count_of(scores, n) for n in counts[-1:])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def scores_json(scores: Scores) -> dict[str, object]:
    """Scores as plain data for programs; a score that is not finite is null, as JSON has no word for it."""
    return {
        "scores": {name: _score_json(score) for name, score in scores.values.items()},
        "counts": dict(scores.counts),
        "conditions": dict(scores.conditions),
    }


def scores_from_json(saved: Mapping[str, Any]) -> Scores:
    """The scores that `scores_json` wrote; a null one stays not a number."""
    values = {}
    for name, score in saved["scores"].items():
        known = score or {}
        metric = Metric(name, known.get("unit", ""), known.get("higher_is_better", False), "")
        value, low, high = (math.nan if known.get(part) is None else known[part] for part in ("value", "low", "high"))
        values[name] = Score(metric, value, low, high)
    return Scores(values, saved["counts"], saved["conditions"])


def describe_score(score: Score) -> str:
    """A score with its interval: 12.34 % [10.10, 14.60]."""
    if math.isnan(score.value):
        return "nothing scored"
    value = with_unit(score.value, score.metric.unit)
    return value if math.isnan(score.low) else f"{value} [{score.low:.2f}, {score.high:.2f}]"


def brief_score(score: Score) -> str:
    """A score for a line of the log, rounded to what its interval supports: 66.7 % (95 % CI 55–78)."""
    if math.isnan(score.value):
        return "nothing scored"
    width = score.high - score.low
    if not width > 0:  # none, or nothing to estimate: every utterance is wrong
        return brief_value(score)
    digits = _digits(width)
    return f"{brief_value(score)} (95 % CI {score.low:.{digits}f}–{score.high:.{digits}f})"


def brief_value(score: Score) -> str:
    """A score without its interval, as precise as that allows: 66.7 %."""
    width = score.high - score.low
    digits = max(1, _digits(width)) if width > 0 else 2
    return f"{score.value:.{digits}f} {score.metric.unit}".rstrip()


def _digits(width: float) -> int:
    """The decimals that an interval of this width leaves."""
    return 0 if width >= WIDE else 1 if width >= WIDE / 10 else 2


def with_unit(value: float, unit: str) -> str:
    """A value as it is printed: 12.34 %, 9.50 dB, 42.17."""
    return f"{value:.2f} {unit}".rstrip()


def metric_label(name: str) -> str:
    """The name of a metric as a model card has it: raw_wer is raw WER, si_sdr is SI-SDR, and accuracy is accuracy."""
    label, after_abbreviation = "", False
    for word in name.split("_"):
        is_short = len(word) <= LONGEST_ABBREVIATION and word not in PLAIN_WORDS
        is_abbreviation = is_short or word in LONGER_ABBREVIATIONS
        joiner = "-" if after_abbreviation and is_abbreviation else " "
        label += f"{joiner if label else ''}{word.upper() if is_abbreviation else word}"
        after_abbreviation = is_abbreviation
    return label


def without_repeats(names: Iterable[str], conditions: Mapping[str, str]) -> list[str]:
    """The metrics worth showing: without a normalizer, `raw_` ones repeat the others."""
    is_raw = conditions.get("normalizer") == "none"
    return [name for name in names if not (is_raw and name.startswith("raw_"))]


def _score_json(score: Score) -> dict[str, object] | None:
    if not math.isfinite(score.value):
        return None
    low, high = (each if math.isfinite(each) else None for each in (score.low, score.high))
    described = {"unit": score.metric.unit, "higher_is_better": score.metric.higher_is_better}
    return {"value": score.value, "low": low, "high": high, **described}


def _badness(score: Score) -> float:
    if math.isnan(score.value):
        return math.inf
    return score.value if score.metric.higher_is_better else -score.value


def _union(groups: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for group in groups for name in group))


def _value_of(scores: Scores, name: str) -> str:
    return describe_score(scores.values[name]) if name in scores.values else ""


def _count_of(scores: Scores, name: str) -> str:
    return f"{scores.counts[name]:,}" if name in scores.counts else ""


def _plain_value(score: Score | None) -> str:
    return "" if score is None or math.isnan(score.value) else with_unit(score.value, score.metric.unit)


def aligned(rows: list[list[str]]) -> str:
    """Cells in columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: list[str], widths: list[int]) -> str:
    name, *cells = row
    padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
    return "  ".join([name.ljust(widths[0]), *padded]).rstrip()

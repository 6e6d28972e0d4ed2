"""The page of a comparison: differences with tests, slices where systems differ, words, and utterances side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attune.metrics import Json
from attune.report.comparison import SIGNIFICANT, TESTS, Compared, Comparison, comparison_json, word_points
from attune.report.page import Page, make_page
from attune.report.sets import ScoredSet, coded, columns_of, groups_of, labels_of
from attune.report.sounds import sound_of
from attune.scoring.bleu import BLEU
from attune.scoring.significance import Counts, holm, paired_bootstrap

SLICE_RESAMPLES = 2000
FEWEST = 5  # utterances of a slice that is compared
MOST_SLICES = 60  # of a kind, the largest


def compare_page(comparisons: Sequence[Comparison], scored: Sequence[ScoredSet], folder: str, command: str) -> Page:
    """One page for a comparison, and maybe another on a retained set; `scored` has the utterances of each."""
    names = " vs. ".join(each.system.name for each in comparisons[0].systems)
    data: Json = {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "folder": folder,
        "command": command,
        "tests": dict(TESTS),
        "sets": [_set_data(*pair) for pair in zip(comparisons, scored, strict=True)],
    }
    return make_page(f"{names} · attune compare", "compare.js", data)


def _set_data(comparison: Comparison, scored: ScoredSet) -> dict[str, Json]:
    columns: dict[str, Any] = columns_of(scored)
    labels = labels_of(scored.utterances)
    return {
        **comparison_json(comparison),
        "label": comparison.label,
        "kind": comparison.kind,
        "isGood": comparison.metric.higher_is_better,
        **columns,
        "labels": {name: coded(values) for name, values in labels.items()},
        "references": list(comparison.references),
        "sizes": comparison.sizes.tolist(),
        "wrong": [each.wrong.round(3).tolist() for each in comparison.systems],
        "found": [_found(each, comparison) for each in comparison.systems],
        "vocabulary": list(word_points(comparison)),
        "slices": _slices(comparison, {**labels, **groups_of(columns)}),
        "sounds": _sounds(comparison, scored),
    }


def _found(system: Compared, comparison: Comparison) -> list[Json]:
    """The codes of texts, or labels as they are."""
    return [each.code for each in system.diffs] if comparison.kind == "text" else list(system.values)


def _sounds(comparison: Comparison, scored: ScoredSet) -> Json:
    """The recordings of the utterances over which the systems differ most."""
    first, *others = (each.wrong for each in comparison.systems)
    gaps = np.max([np.abs(other - first) for other in others], axis=0)
    rows = [int(row) for row in np.argsort(-gaps, kind="stable")[: scored.embedded] if gaps[row]]
    known = {row: scored.utterances[row] for row in rows}
    return {str(row): sound for row, each in known.items() if each and (sound := sound_of(each))}


def _slices(comparison: Comparison, groups: Mapping[str, Sequence[str | None]]) -> list[Json]:
    """Where the last system differs from the first: kind, name, utterances, both rates, difference, interval, p."""
    if comparison.metric is BLEU:  # its rows do not add up
        return []
    first, last = comparison.systems[0], comparison.systems[-1]
    scale = 1.0 if comparison.kind == "values" else 100.0
    found: list[list[Any]] = []
    for kind, names in groups.items():
        for name, rows in _members(names):
            sizes = comparison.sizes[rows]
            change = paired_bootstrap(first.wrong[rows], last.wrong[rows], sizes, SLICE_RESAMPLES, scale)
            rates = [_rate(each.wrong[rows], sizes, comparison) for each in (first, last)]
            change = change.negated if comparison.metric.higher_is_better else change
            figures = [round(float(each), 2) for each in (*rates, change.value, change.low, change.high)]
            found.append([kind, name, len(rows), *figures, change.p])
    adjusted = holm([each[-1] for each in found])
    return [[*each[:-1], round(p, 4), p < SIGNIFICANT] for each, p in zip(found, adjusted, strict=True)]


def _rate(wrong: Counts, sizes: Counts, comparison: Comparison) -> float:
    """The metric of some rows, from what each adds to it."""
    rate = float(wrong.sum()) / max(1, int(sizes.sum()))
    if comparison.kind == "values":
        return -rate if comparison.metric.higher_is_better else rate
    return 100 * (1 - rate if comparison.metric.higher_is_better else rate)


def _members(names: Sequence[str | None]) -> list[tuple[str, np.ndarray]]:
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        if name is not None:
            rows.setdefault(name, []).append(row)
    large = [(name, np.array(own)) for name, own in rows.items() if len(own) >= FEWEST]
    return sorted(large, key=lambda item: -len(item[1]))[:MOST_SLICES] if len(large) > 1 else []

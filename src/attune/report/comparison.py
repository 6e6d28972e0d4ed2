"""Systems compared on the utterances that all of them predicted: how far apart they are, and whether that is chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.metrics import Json, Metric, Prediction, Score
from attune.report.diffs import Diff, WordCounts, diff
from attune.report.tables import aligned, metric_label, with_unit
from attune.scoring import bootstrap
from attune.scoring.accuracy import ACCURACY
from attune.scoring.bleu import BLEU, paired_bleu, score_translations
from attune.scoring.significance import (
    Counts,
    RateDifference,
    Slots,
    holm,
    mapsswe,
    mcnemar,
    paired_bootstrap,
    stretches,
)

ComparedKind = Literal["text", "labels", "values", "trials"]
PairTests = tuple[RateDifference, dict[str, float]]  # the difference, and p by test

TESTS = {"bootstrap": "paired bootstrap", "mapsswe": "MAPSSWE", "mcnemar": "McNemar"}
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class System:
    """What is compared: predictions of a set under a name."""

    name: str
    predictions: Sequence[Prediction]
    speed: float | None = None  # seconds of audio decoded in a second


@dataclass(frozen=True, slots=True)
class Compared:
    """A system on the common utterances: its score, and what it adds to the score by row."""

    system: System
    score: Score
    wrong: Counts  # errors, or scores such that less is better
    values: Sequence[str]
    diffs: Sequence[Diff]
    words: WordCounts


@dataclass(frozen=True, slots=True)
class PairResult:
    """The second of two systems against the first: difference, tests, and utterances won and lost by the second."""

    first: int
    second: int
    difference: RateDifference
    tests: Mapping[str, float]
    adjusted: Mapping[str, float]  # by Holm, over all pairs
    won: int
    lost: int

    @property
    def is_significant(self) -> bool:
        """By the paired bootstrap, corrected."""
        return self.adjusted["bootstrap"] < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Comparison:
    """All systems on one set."""

    split: str
    kind: ComparedKind
    metric: Metric
    ids: Sequence[str]
    references: Sequence[str]
    sizes: NDArray[np.int64]
    systems: Sequence[Compared]
    pairs: Sequence[PairResult]
    left_out: int  # utterances that not all systems have

    @property
    def label(self) -> str:
        """What is compared, as it is printed."""
        label = metric_label(self.metric.name)
        return f"mean {label}" if self.kind == "values" else label

    @property
    def unit(self) -> str:
        """What a row is."""
        return "trial" if self.kind == "trials" else "utterance"


def compare(split: str, systems: Sequence[System], metric: Metric, normalize: Callable[[str], str]) -> Comparison:
    """Compare systems on what all of them predicted by an error rate of words, BLEU or accuracy.

    References must be the same.
    """
    known = [{each.id: each for each in system.predictions if not each.is_absent} for system in systems]
    ids = [each.id for each in systems[0].predictions if all(each.id in own for own in known)]
    if not ids:
        raise DataError(f"The systems have no utterance of {split} in common. Give runs scored on the same set.")
    references = _references(split, ids, systems, known, normalize)
    kind: ComparedKind = "labels" if metric is ACCURACY else "text"
    sizes = np.array([len(text.split()) if kind == "text" else 1 for text in references], np.int64)
    values = [[normalize(_text(own[name].value)) for name in ids] for own in known]
    compared = [_compared(system, metric, own, references, sizes) for system, own in zip(systems, values, strict=True)]
    total = len(set().union(*({each.id for each in system.predictions} for system in systems)))
    return Comparison(
        split,
        kind,
        metric,
        ids,
        references,
        sizes,
        compared,
        pair_results(compared, lambda one, other: _tests(compared[one], compared[other], references, sizes)),
        total - len(ids),
    )


def _text(value: Json) -> str:
    return str(value["text"]) if isinstance(value, Mapping) and "text" in value else str(value or "")


def _references(
    split: str,
    ids: Sequence[str],
    systems: Sequence[System],
    known: Sequence[Mapping[str, Prediction]],
    normalize: Callable[[str], str],
) -> list[str]:
    references = [normalize(_text(known[0][name].reference)) for name in ids]
    for system, own in zip(systems[1:], known[1:], strict=True):
        for name, reference in zip(ids, references, strict=True):
            if normalize(_text(own[name].reference)) != reference:
                raise DataError(
                    f"{split}: {systems[0].name} and {system.name} have different references for {name!r}. Score "
                    "both on the same manifest: attune evaluate RUN --on MANIFEST."
                )
    return references


def _compared(
    system: System, metric: Metric, values: Sequence[str], references: Sequence[str], sizes: NDArray[np.int64]
) -> Compared:
    words = WordCounts()
    if metric is ACCURACY:
        wrong = np.array([value != reference for value, reference in zip(values, references, strict=True)], np.int64)
        return Compared(system, bootstrap.percent(metric, 1 - wrong, sizes), wrong, values, (), words)
    diffs = [diff(reference.split(), value.split(), words) for reference, value in zip(references, values, strict=True)]
    wrong = np.array([each.total for each in diffs], np.int64)
    if metric is BLEU:
        score = score_translations(references, values, [str(row) for row in range(len(values))])
    else:
        score = bootstrap.percent(metric, wrong, sizes)
    return Compared(system, score, wrong, values, diffs, words)


def pair_results(systems: Sequence[Compared], test: Callable[[int, int], PairTests]) -> list[PairResult]:
    """Every pair of systems; `test` compares two of them by their places."""
    places = list(combinations(range(len(systems)), 2))
    found = [test(*each) for each in places]
    adjusted = {name: holm([tests[name] for _, tests in found]) for name in found[0][1]}
    return [
        PairResult(
            first=one,
            second=other,
            difference=difference,
            tests=tests,
            adjusted={name: ps[place] for name, ps in adjusted.items()},
            won=int((systems[other].wrong < systems[one].wrong).sum()),
            lost=int((systems[other].wrong > systems[one].wrong).sum()),
        )
        for place, ((one, other), (difference, tests)) in enumerate(zip(places, found, strict=True))
    ]


def _tests(first: Compared, second: Compared, references: Sequence[str], sizes: NDArray[np.int64]) -> PairTests:
    metric = first.score.metric
    if metric is BLEU:
        difference = paired_bleu(references, first.values, second.values)
        return difference, {"bootstrap": difference.p}
    difference = paired_bootstrap(first.wrong, second.wrong, sizes)
    if metric is ACCURACY:  # the difference of accuracies, not of errors
        difference = difference.negated
    tests = {"bootstrap": difference.p}
    if metric is not ACCURACY:
        found = zip(references, first.diffs, second.diffs, strict=True)
        segments = [each for text, one, other in found for each in stretches(slots(len(text.split()), one, other))]
        tests["mapsswe"] = mapsswe(segments)
    tests["mcnemar"] = mcnemar_of(first, second)
    return difference, tests


def mcnemar_of(first: Compared, second: Compared) -> float:
    """McNemar's test of which rows only one of two systems has right."""
    right, others = first.wrong == 0, second.wrong == 0
    return mcnemar(int((right & ~others).sum()), int((others & ~right).sum()))


def slots(words: int, first: Diff, second: Diff) -> Slots:
    """The errors of two systems before, at and after each reference word."""
    return list(zip(_errors(words, first.code), _errors(words, second.code), strict=True))


def _errors(words: int, code: str) -> list[int]:
    errors, place = [0] * (2 * words + 1), 0
    for part in code.split():
        match part[0]:
            case "+":
                errors[2 * place] += 1
            case "~":
                errors[2 * place + 1] = 1
                place += 1
            case "-":
                for _ in range(int(part[1:])):
                    errors[2 * place + 1] = 1
                    place += 1
            case _:
                place += int(part)
    return errors


def comparison_table(comparison: Comparison) -> str:
    """Scores and differences for a terminal; of more than two systems, every pair."""
    label, unit = comparison.label, comparison.metric.unit
    rows = [["", f"{label} [95 % CI]", "speed"]]
    for each in comparison.systems:
        score = each.score
        speed = f"{each.system.speed:.0f}×" if each.system.speed else ""
        rows.append([each.system.name, f"{with_unit(score.value, unit)} [{score.low:.2f}, {score.high:.2f}]", speed])
    names = [each.system.name for each in comparison.systems]
    tests = list(comparison.pairs[0].tests)
    head = ["second − first", f"Δ {label} [95 % CI]", *(f"p {TESTS[name]}" for name in tests), "won", "lost", ""]
    pairs = [head]
    for pair in comparison.pairs:
        delta = pair.difference
        verdict = "significant" if pair.is_significant else "not significant"
        pairs.append(
            [
                f"{names[pair.second]} − {names[pair.first]}",
                f"{delta.value:+.2f} [{delta.low:+.2f}, {delta.high:+.2f}]",
                *(p_text(pair.adjusted[name]) for name in tests),
                f"{pair.won:,}",
                f"{pair.lost:,}",
                verdict,
            ]
        )
    corrected = [f"p values are corrected by Holm for {len(comparison.pairs)} pairs"] * (len(names) > 2)
    return "\n".join([aligned(rows), "", aligned(pairs), *corrected])


def p_text(p: float) -> str:
    """A p value as it is printed."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The same as plain data."""
    systems = [
        {
            "name": each.system.name,
            "value": each.score.value,
            "low": each.score.low,
            "high": each.score.high,
            "speed": each.system.speed,
        }
        for each in comparison.systems
    ]
    return {
        "set": comparison.split,
        "metric": comparison.metric.name,
        "unit": comparison.metric.unit,
        "utterances": len(comparison.ids),
        "left_out": comparison.left_out,
        "systems": systems,
        "pairs": [_pair_json(pair, systems) for pair in comparison.pairs],
    }


def _pair_json(pair: PairResult, systems: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "first": systems[pair.first]["name"],
        "second": systems[pair.second]["name"],
        **dict(zip(("difference", "low", "high"), pair.difference[:3], strict=True)),
        "p": dict(pair.tests),
        "p_holm": dict(pair.adjusted),
        "won": pair.won,
        "lost": pair.lost,
        "significant": pair.is_significant,
    }


def describe_change(comparison: Comparison, noun: str) -> str:
    """Before and after in a line: retained: WER 5.10 → 7.30 %, +2.20 [+1.00, +3.40], p = 0.002: worse."""
    first, second = comparison.systems[0].score, comparison.systems[1].score
    pair = comparison.pairs[0]
    delta = pair.difference
    is_better = comparison.metric.is_better(second.value, first.value)
    verdict = ("better" if is_better else "worse") if pair.is_significant else "no significant change"
    p = p_text(pair.adjusted["bootstrap"])
    return (
        f"{noun}: {comparison.label} {first.value:.2f} → {with_unit(second.value, comparison.metric.unit)}, "
        f"{delta.value:+.2f} [{delta.low:+.2f}, {delta.high:+.2f}], p {p if p.startswith('<') else f'= {p}'}: {verdict}"
    )


def word_points(comparison: Comparison, least: int = 3) -> Iterator[Json]:
    """Each frequent word: how often it is there, and how often each system has it right."""
    seen: Counter[str] = comparison.systems[0].words.seen
    for word, many in seen.most_common(2000):
        if many >= least:
            yield [word, many, *(many - each.words.wrong[word] for each in comparison.systems)]

"""Comparisons of what is neither text nor label: a score of each utterance, such as SI-SDR or DER, and trials.

Scores are compared by their mean over utterances, which for a metric that is a ratio of sums, such as DER, weighs every
recording alike. Trials are compared by EER, and speakers are resampled: trials of one speaker are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.metrics import Metric
from attune.report.comparison import Compared, Comparison, PairTests, System, mcnemar_of, pair_results
from attune.report.diffs import WordCounts
from attune.report.sets import SpeakerTrial
from attune.scoring import bootstrap
from attune.scoring.detection import EER, Trials, equal_error_rate
from attune.scoring.significance import paired_bootstrap, paired_statistic, speaker_weights


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """A system with a score for each of its utterances, where it has one."""

    system: System
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class ScoredTrials:
    """A system with its trials."""

    system: System
    trials: Sequence[SpeakerTrial]


def compare_rows(split: str, scored: Sequence[ScoredRows], metric: Metric) -> Comparison:
    """Systems by the mean of their utterances' scores."""
    known = [_known(each) for each in scored]
    ids = _common(split, [[each.id for each in one.system.predictions] for one in scored], known)
    sign = -1.0 if metric.higher_is_better else 1.0
    sizes = np.ones(len(ids), np.int64)
    systems = []
    for each, own in zip(scored, known, strict=True):
        values = np.array([own[name] for name in ids], np.float64)
        shown = [f"{value:.2f}" for value in values]
        systems.append(Compared(each.system, bootstrap.mean(metric, values), sign * values, shown, (), WordCounts()))

    def test(first: int, second: int) -> PairTests:
        found = paired_bootstrap(systems[first].wrong, systems[second].wrong, sizes, scale=1.0)
        return found if sign > 0 else found.negated, {"bootstrap": found.p}

    total = len({each.id for one in scored for each in one.system.predictions})
    return Comparison(
        split, "values", metric, ids, [""] * len(ids), sizes, systems, pair_results(systems, test), total - len(ids)
    )


def _known(scored: ScoredRows) -> dict[str, float]:
    rows = zip(scored.system.predictions, scored.values, strict=True)
    return {each.id: value for each, value in rows if value is not None and np.isfinite(value)}


def _common(split: str, names: Sequence[Sequence[str]], known: Sequence[dict[str, float]]) -> list[str]:
    ids = [name for name in names[0] if all(name in own for own in known)]
    if not ids:
        raise DataError(f"The systems have no utterance of {split} with a score in common.")
    return ids


def compare_trials(split: str, scored: Sequence[ScoredTrials]) -> Comparison:
    """Systems by the EER of the trials that all of them have."""
    known = [{each.name: each.score for each in one.trials} for one in scored]
    ids = _common(split, [[each.name for each in one.trials] for one in scored], known)
    first = {each.name: each for each in scored[0].trials}
    _require_same_answers(split, scored, ids)
    is_target = np.array([first[name].is_target for name in ids], np.bool_)
    if is_target.all() or not is_target.any():
        kind = "of one speaker" if is_target.all() else "of two speakers"
        raise DataError(f"The trials of {split} that all systems have are all {kind}. An EER needs both kinds.")
    draws = speaker_weights([first[name].speakers for name in ids])
    scores = [np.array([own[name] for name in ids], np.float64) for own in known]
    trials = [Trials.of(own, is_target) for own in scores]
    systems = [_trial_system(each.system, trials[place], scores[place], is_target) for place, each in enumerate(scored)]

    def test(first: int, second: int) -> PairTests:
        one, other = trials[first], trials[second]
        difference = paired_statistic(
            lambda weights: equal_error_rate(*one.weighted_rates(weights)),
            lambda weights: equal_error_rate(*other.weighted_rates(weights)),
            draws,
            len(ids),
        )
        return difference, {"bootstrap": difference.p, "mcnemar": mcnemar_of(systems[first], systems[second])}

    references = ["same speaker" if each else "different speakers" for each in is_target]
    total = len(set().union(*known))
    sizes = np.ones(len(ids), np.int64)
    return Comparison(
        split, "trials", EER, ids, references, sizes, systems, pair_results(systems, test), total - len(ids)
    )


def _require_same_answers(split: str, scored: Sequence[ScoredTrials], ids: Sequence[str]) -> None:
    first, *others = ({each.name: each.is_target for each in one.trials} for one in scored)
    for one, own in zip(scored[1:], others, strict=True):
        if wrong := next((name for name in ids if own[name] != first[name]), None):
            names = f"{scored[0].system.name} and {one.system.name}"
            raise DataError(f"{split}: {names} have different answers for the trial {wrong!r}.")


def _trial_system(
    system: System, trials: Trials, scores: NDArray[np.float64], is_target: NDArray[np.bool_]
) -> Compared:
    """A system with its EER, and which trials it decides wrongly at the threshold of its EER."""
    wrong = ((scores >= trials.eer_threshold(scores)) != is_target).astype(np.int64)
    everything = [str(row) for row in range(len(scores))]
    score = bootstrap.statistic(EER, lambda rows: equal_error_rate(*trials.rates(rows)), everything)
    return Compared(system, score, wrong, [f"{value:.3f}" for value in scores], (), WordCounts())

"""Does a task's scoring keep what best checkpoints, reports and several ranks rely on?"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from attune.contracts import HeadTask, Task
from attune.errors import AttuneError
from attune.metrics import Unit
from attune.report.predictions import read_predictions, write_predictions
from attune.report.tables import scores_json
from attune.scorers import SEARCHED
from attune.sources import Cache, locate
from attune.types import Hypothesis, Prediction, Scores, ScoringContext, Utterance

SPLIT = "test"
MOST_SHIFTS = 5
STRIDE = 160  # samples between two frames of the encoder that heads are checked with

# A flawless prediction for an utterance; a value that is audio is written as a file to the folder.
Perfect = Callable[[Utterance, Path], Prediction]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A task with its flawless predictions, and what they are scored with."""

    task: Task
    utterances: Sequence[Utterance]
    perfect: Sequence[Prediction]
    context: ScoringContext

    def score(self, predictions: Sequence[Prediction]) -> Scores:
        """The task's scores."""
        return self.task.score(predictions, self.context)

    def primary(self, predictions: Sequence[Prediction]) -> float:
        """The primary metric; NaN where the task does not have it."""
        score = self.score(predictions).values.get(self.task.metrics[0].name)
        return score.value if score else math.nan


def check_scoring(task: Task, utterances: Sequence[Utterance], perfect: Perfect | None, scratch: Path) -> Iterator[str]:
    """A sentence for each promise that the task's scoring breaks; files are written to `scratch`."""
    by_id = {utterance.id: utterance for utterance in utterances}
    cache = Cache(scratch / "cache")
    files = {name: locate(source, cache) for name, source in task.scoring_files(SPLIT).items()}
    context = ScoringContext(SPLIT, scratch, files, by_id.__getitem__)
    flawless = [_perfect(task, utterance, perfect, scratch) for utterance in utterances]
    checked = _Checked(task, utterances, flawless, context)
    yield from _declaration(checked)
    yield from _direction(checked)
    yield from _counts(checked)
    yield from _round_trip(checked, scratch / "predictions.jsonl")
    yield from _reading(checked)


def _perfect(task: Task, utterance: Utterance, perfect: Perfect | None, scratch: Path) -> Prediction:
    if perfect:
        return perfect(utterance, scratch)
    reference = task.reference(utterance)
    return Prediction(utterance.id, reference, reference)


def _declaration(checked: _Checked) -> Iterator[str]:
    declared = {metric.name: metric for metric in checked.task.metrics}
    scores = checked.score(checked.perfect).values
    for name, score in scores.items():
        if declared.get(name) != score.metric:
            yield f"scoring: {name} is not the metric that the task declares under that name"
    for metric in checked.task.metrics:
        if metric.unit not in get_args(Unit):
            yield f"scoring: the unit of {metric.name} is {metric.unit!r}, not one of {', '.join(get_args(Unit))}"
    primary = checked.task.metrics[0].name
    if primary not in scores or math.isnan(scores[primary].value):
        yield f"scoring: perfect predictions have no {primary}, the primary metric"


def _direction(checked: _Checked) -> Iterator[str]:
    metric, best = checked.task.metrics[0], checked.primary(checked.perfect)
    for shift in range(1, min(len(checked.perfect), MOST_SHIFTS)):
        corrupted = checked.primary(_rotated(checked.perfect, shift))
        if metric.is_better(corrupted, best):
            yield f"scoring: with others' values, {metric.name} gets better: {best:g} when perfect, {corrupted:g} then"
            return
    absent = checked.primary([replace(each, value=None, file=None) for each in checked.perfect])
    if not math.isnan(absent):
        yield f"scoring: without any prediction, {metric.name} is {absent:g} instead of NaN"


def _rotated(predictions: Sequence[Prediction], shift: int) -> list[Prediction]:
    """Each utterance with the prediction of another."""
    others = [*predictions[shift:], *predictions[:shift]]
    return [replace(own, value=other.value, file=other.file) for own, other in zip(predictions, others, strict=True)]


def _counts(checked: _Checked) -> Iterator[str]:
    if checked.task.scored_over == "set":
        return
    half = len(checked.perfect) // 2
    parts = checked.perfect, checked.perfect[:half], checked.perfect[half:]
    whole, left, right = (checked.score(part).counts for part in parts)
    for name, count in whole.items():
        if count != left[name] + right[name]:
            yield f"scoring: {name} of two halves is {left[name]} and {right[name]}, of the whole {count}"


def _round_trip(checked: _Checked, path: Path) -> Iterator[str]:
    try:
        write_predictions(path, checked.perfect)
        scores = checked.score(read_predictions(path))
    except AttuneError as error:
        yield f"predictions: they cannot be written and read again: {error}"
        return
    if scores_json(scores) != scores_json(checked.score(checked.perfect)):
        yield "predictions: written to a file and read again, they have other scores"


def _reading(checked: _Checked) -> Iterator[str]:
    """Targets that are token or class ids, read as if they were found; what the normalizer takes away is no loss."""
    task = checked.task
    if not isinstance(task, HeadTask) or task.head(1, STRIDE).scorer_kind not in SEARCHED:
        return
    targets = [task.target(utterance) for utterance in checked.utterances]
    tokens = [target for target in targets if isinstance(target, tuple)]
    if len(tokens) < len(targets):
        return
    reads = [
        replace(perfect, value=task.read(Hypothesis(target, 0.0)), file=None)
        for target, perfect in zip(tokens, checked.perfect, strict=True)
    ]
    parts = [slice(None)] if task.scored_over == "set" else [slice(row, row + 1) for row in range(len(reads))]
    for part in parts:
        value, best = checked.primary(reads[part]), checked.primary(checked.perfect[part])
        if task.metrics[0].is_better(best, value):
            found = ", ".join(f"{each.id!r} reads {each.value!r}" for each in reads[part])
            yield f"reading: the target of {found}: {task.metrics[0].name} {value:g} instead of {best:g}"

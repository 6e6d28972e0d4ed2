"""Does a task keep what training, decoding and scoring rely on? Checked on real utterances; no audio is read."""

# B batch, F frames, D width
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from attune.batches.collate import collate
from attune.contracts import Section, Task, TaskType
from attune.files import sha256
from attune.testing.problems import require_none, without_gradient
from attune.types import Hypothesis, LoadedRow, Prediction, Utterance, tokens_of

WIDTH = 8


def check_task(task: TaskType[Section], config: Section, utterances: Sequence[Utterance]) -> None:
    """Raise CheckFailed with every promise that the task breaks on these utterances."""
    with tempfile.TemporaryDirectory() as name, torch.random.fork_rng(devices=[]):
        first, second = Path(name, "first"), Path(name, "second")
        for folder in (first, second):
            folder.mkdir()
            task.prepare(config, utterances, folder)
        ready = task(config, first)
        problems = [
            *_preparation(first, second),
            *_reading(ready, utterances),
            *_scoring(ready, utterances),
            *_gradients(ready, utterances),
        ]
    require_none("The task", problems)


def _preparation(first: Path, second: Path) -> Iterator[str]:
    if _contents(first) != _contents(second):
        yield "preparation: the same utterances prepared twice give different files"


def _contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


def _reading(task: Task, utterances: Sequence[Utterance]) -> Iterator[str]:
    for utterance in utterances:
        reference = task.reference(utterance)
        read = task.read(Hypothesis(tokens_of(task.target(utterance)), 0.0))
        # The figure a task names first is the one it is judged by; what the normalizer takes away is no loss.
        name, score = _first(task, Prediction(utterance.id, read, reference))
        _, best = _first(task, Prediction(utterance.id, reference, reference))
        if score != best:
            yield f"reading: the target of {utterance.id!r} reads {read!r}: {name} {score:g} against {reference!r}"


def _first(task: Task, prediction: Prediction) -> tuple[str, float]:
    name, score = next(iter(task.score([prediction]).values.items()))
    return name, score.value


def _scoring(task: Task, utterances: Sequence[Utterance]) -> Iterator[str]:
    references = [task.reference(utterance) for utterance in utterances]
    perfect = [Prediction(str(row), reference, reference) for row, reference in enumerate(references)]
    for name, score in task.score(perfect).values.items():
        if score.value not in (0.0, 100.0):
            yield f"scoring: perfect predictions have {name} {score.value:g}, neither 0 nor 100"
    half = len(perfect) // 2
    whole, left, right = (task.score(part).counts for part in (perfect, perfect[:half], perfect[half:]))
    for name, count in whole.items():
        if count != left[name] + right[name]:
            yield f"scoring: {name} of two halves is {left[name]} and {right[name]}, of the whole {count}"


def _gradients(task: Task, utterances: Sequence[Utterance]) -> Iterator[str]:
    targets = [task.target(utterance) for utterance in utterances]
    counts = [max(4, 2 * task.frames_needed(target)) for target in targets]
    batch = collate([LoadedRow(str(row), torch.zeros(1).numpy(), target) for row, target in enumerate(targets)])
    head: Any = task.head(WIDTH)
    head.train().loss(torch.randn(len(targets), max(counts), WIDTH), torch.tensor(counts), batch).total.backward()
    yield from without_gradient(head)

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
from attune.testing.scoring import Perfect, check_scoring
from attune.types import LoadedRow, Utterance

WIDTH = 8


def check_task(
    task: TaskType[Section], config: Section, utterances: Sequence[Utterance], perfect: Perfect | None = None
) -> None:
    """Raise CheckFailed with every promise that the task breaks on these utterances.

    `perfect` makes a flawless prediction, for a task whose values are not what they are compared with (an embedding and
    a speaker); without it, it is the reference.
    """
    with tempfile.TemporaryDirectory() as name, torch.random.fork_rng(devices=[]):
        first, second = Path(name, "first"), Path(name, "second")
        for folder in (first, second):
            folder.mkdir()
            task.prepare(config, utterances, folder)
        ready = task(config, first)
        problems = [
            *_preparation(first, second),
            *check_scoring(ready, utterances, perfect, Path(name)),
            *_gradients(ready, utterances),
        ]
    require_none("The task", problems)


def _preparation(first: Path, second: Path) -> Iterator[str]:
    if _contents(first) != _contents(second):
        yield "preparation: the same utterances prepared twice give different files"


def _contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


def _gradients(task: Task, utterances: Sequence[Utterance]) -> Iterator[str]:
    targets = [task.target(utterance) for utterance in utterances]
    counts = [max(4, 2 * task.frames_needed(target)) for target in targets]
    batch = collate([LoadedRow(str(row), torch.zeros(1).numpy(), target) for row, target in enumerate(targets)])
    head: Any = task.head(WIDTH)
    head.train().loss(torch.randn(len(targets), max(counts), WIDTH), torch.tensor(counts), batch).total.backward()
    yield from without_gradient(head)

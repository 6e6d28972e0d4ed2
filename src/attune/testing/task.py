"""Does a task keep what training, decoding and scoring rely on? Checked on real utterances."""

# B batch, F frames, D width
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from attune.batches.collate import collate, pad
from attune.contracts import Head, HeadTask, Section, TaskType
from attune.files import sha256
from attune.testing.problems import differences, require_none, without_gradient
from attune.testing.scoring import STRIDE, Perfect, check_scoring
from attune.types import LoadedRow, Loss, Target, Utterance

WIDTH = 8
TOLERANCE = 1e-4


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
            *(
                _head(ready, list(map(ready.target, utterances)), ready.frames_needed)
                if isinstance(ready, HeadTask)
                else ()
            ),
        ]
    require_none("The task", problems)


def _preparation(first: Path, second: Path) -> Iterator[str]:
    if _contents(first) != _contents(second):
        yield "preparation: the same utterances prepared twice give different files"


def _contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


def _head(task: HeadTask, targets: Sequence[Target], frames_needed: Callable[[Target], int]) -> Iterator[str]:
    """The head learns with all of it, and an utterance's loss depends on that utterance alone."""
    frames = [torch.randn(max(4, 2 * frames_needed(target)), WIDTH) for target in targets]
    audio = [torch.randn(len(own) * STRIDE).numpy() for own in frames]
    rows = [LoadedRow(str(row), own, target) for row, (own, target) in enumerate(zip(audio, targets, strict=True))]
    head = task.head(WIDTH, STRIDE)
    module = cast(nn.Module, head).train()
    _loss(head, frames, rows).total.backward()  # type: ignore[no-untyped-call]
    yield from without_gradient(module)
    module.eval()
    alone = [_loss(head, [own], [row]).total for own, row in zip(frames, rows, strict=True)]
    together = _loss(head, frames, rows).total
    yield from differences(
        "sums: the loss of a batch against its utterances'", torch.stack(alone).sum(), together, TOLERANCE
    )


def _loss(head: Head, frames: Sequence[Tensor], rows: Sequence[LoadedRow]) -> Loss:
    return head.loss(pad(frames), torch.tensor([len(own) for own in frames]), collate(rows))

"""Does a task keep what training, decoding and scoring rely on? Checked on real utterances."""

# B batch, F frames, D width
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from attune.batches.collate import collate
from attune.contracts import Head, HeadTask, Section, Task, TaskCodec, TaskType
from attune.files import sha256
from attune.testing.outputs import outputs_of
from attune.testing.problems import differences, require_none, without_gradient
from attune.testing.scoring import STRIDE, Perfect, check_scoring
from attune.testing.training import check_training
from attune.types import Batch, LoadedRow, Loss, Scorer, Target, Utterance

WIDTH = 8
SEED = 17
TOLERANCE = 1e-4


class HeadModel(nn.Module):
    """A head on an encoder that does not learn: a fixed projection of every `STRIDE` samples."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.encoder = nn.Linear(STRIDE, WIDTH).requires_grad_(False)
        self.head = head

    def loss(self, batch: Batch) -> Loss:
        """The head's loss, summed over the batch."""
        return self.head.loss(*self._encode(batch), batch)

    def scorer(self, batch: Batch) -> Scorer:
        """What decoding sees."""
        return self.head.scorer(*self._encode(batch), batch)

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        return samples // STRIDE

    def graph_samples(self, samples: int) -> int | None:
        """None: a head may look at lengths."""
        return None

    def _encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.encoder(batch.audio.view(len(batch.ids), -1, STRIDE)), batch.lengths // STRIDE


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
        prompts = [TaskCodec(ready).prompt(utterance) for utterance in utterances]
        problems = [
            *_preparation(first, second),
            *check_scoring(ready, utterances, perfect, Path(name)),
            *(_head(ready, _rows(utterances, ready), prompts) if isinstance(ready, HeadTask) else ()),
        ]
    require_none("The task", problems)


def _preparation(first: Path, second: Path) -> Iterator[str]:
    if _contents(first) != _contents(second):
        yield "preparation: the same utterances prepared twice give different files"


def _contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


def _head(task: HeadTask, rows: Sequence[LoadedRow], prompts: Sequence[Target]) -> Iterator[str]:
    """The head learns with all of it, the same on any ranks; and an utterance's result depends on it alone."""

    def build() -> HeadModel:
        torch.manual_seed(SEED)
        return HeadModel(task.head(WIDTH, STRIDE))

    model = build()
    model.loss(collate(rows)).total.backward()  # type: ignore[no-untyped-call]
    yield from without_gradient(cast(nn.Module, model.head))
    model.eval()
    with torch.no_grad():
        alone = [model.loss(collate([row])).total for row in rows]
        together = model.loss(collate(rows)).total
    yield from differences(
        "sums: the loss of a batch against its utterances'", torch.stack(alone).sum(), together, TOLERANCE
    )
    yield from _neighbors(model, [replace(row, target=prompt) for row, prompt in zip(rows, prompts, strict=True)])
    yield from check_training(build, rows)


def _neighbors(model: HeadModel, rows: Sequence[LoadedRow]) -> Iterator[str]:
    """What decoding sees of an utterance is the same alone and in a batch."""
    with torch.no_grad():
        alone = [outputs_of(model.scorer(collate([row])))[0] for row in rows]
        together = outputs_of(model.scorer(collate(rows)))
    for row, one, other in zip(rows, alone, together, strict=True):
        yield from differences(f"neighbors: the output of {row.id!r} in a batch", one, other, TOLERANCE)


def _rows(utterances: Sequence[Utterance], task: Task) -> list[LoadedRow]:
    """The utterances' targets with noise for audio, as long as they need."""
    targets = [task.target(utterance) for utterance in utterances]
    frames = [max(4, 2 * task.frames_needed(target)) for target in targets]
    return [
        LoadedRow(utterance.id, torch.randn(count * STRIDE).numpy(), target)
        for utterance, count, target in zip(utterances, frames, targets, strict=True)
    ]

"""Decode a whole corpus: longest first, batches shared out over the ranks, merged by row.

A prediction depends on its utterance alone, so neither the batches nor the ranks show in the result.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

import torch
from torch import nn

from attune.batches.load import LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.plan import Plan
from attune.contracts import HalfPrecisionModel, SpeechModel, TaskModel
from attune.decoding.fallback import find
from attune.decoding.search import Search
from attune.types import Hypothesis
from attune.world import HALF_PRECISION, World


@dataclass(frozen=True, slots=True)
class Decoded:
    """The hypotheses of one batch, by row number, and what could not be read."""

    rows: tuple[int, ...]
    hypotheses: tuple[Hypothesis | None, ...]
    problems: tuple[str, ...] = ()


def decode(built: TaskModel, batches: Iterable[LoadedMicroBatch], settings: Search, world: World) -> Iterator[Decoded]:
    """Batch after batch, the best hypothesis of each utterance."""
    built = replace(built, model=ready(built.model, settings))
    for loaded in batches:
        yield _decode_one(built, loaded, settings, world)


def ready(model: SpeechModel, settings: Search) -> SpeechModel:
    """The model as a search wants it: without dropout, and a copy where it must be narrower."""
    model.eval()
    if settings.precision == "fp32":
        return model
    dtype = HALF_PRECISION[settings.precision]
    if isinstance(model, HalfPrecisionModel):
        return model.narrowed(dtype)
    return cast(SpeechModel, cast(nn.Module, copy.deepcopy(model)).to(dtype))


def share(plan: Plan, world: World) -> Iterator[MicroBatchPlan]:
    """A rank's part of a plan, every size-th batch: as they go from long to short, the ranks get equal work."""
    every = (MicroBatchPlan(Position(), index, plan.order[start:end]) for index, start, end in _bounds(plan))
    return islice(every, world.rank, None, world.size)


def _bounds(plan: Plan) -> Iterator[tuple[int, int, int]]:
    return ((index, int(plan.bounds[index]), int(plan.bounds[index + 1])) for index in range(plan.micros))


def _decode_one(built: TaskModel, loaded: LoadedMicroBatch, settings: Search, world: World) -> Decoded:
    rows = tuple(int(row) for row in loaded.micro.rows)
    problems = tuple(dropped.reason for dropped in loaded.dropped)
    if loaded.batch is None:
        return Decoded(rows, (None,) * len(rows), problems)
    with torch.inference_mode():
        found = iter(find(built, loaded.batch.to(world.device), settings))
    missing = {dropped.row for dropped in loaded.dropped}
    return Decoded(rows, tuple(None if row in missing else next(found) for row in rows), problems)

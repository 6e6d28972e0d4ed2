"""Decode a whole corpus: longest first, batches divided among the ranks, outputs by row.

An output depends on its utterance alone, so neither the batches nor the ranks change the result.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

import torch
from torch import nn

from attune.batches.micro_batch import LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.plan import Plan
from attune.contracts import HalfPrecisionModel, QuantizedModel, SpeechModel, TaskModel
from attune.decoding.search import Search, decode_batch
from attune.errors import ModelError
from attune.kernels.cuda_graph import is_sharded
from attune.kernels.int8 import int8_copy
from attune.types import Output
from attune.world import HALF_PRECISION, World


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """The output for each utterance of a batch, by row number, and what could not be read."""

    rows: tuple[int, ...]
    outputs: tuple[Output | None, ...]  # none for an utterance that could not be read
    problems: tuple[str, ...] = ()


def decode(
    task_model: TaskModel, batches: Iterable[LoadedMicroBatch], settings: Search, world: World
) -> Iterator[DecodedBatch]:
    """Batch after batch, the output for each utterance."""
    prepared = prepare_for_decoding(task_model, settings)
    for loaded in batches:
        yield _decode_one(prepared, loaded, settings, world)


def prepare_for_decoding(task_model: TaskModel, settings: Search) -> TaskModel:
    """The model in evaluation mode, without dropout; for half precision and int8 a copy of it."""
    model = task_model.model
    model.eval()
    if settings.precision == "fp32":
        return task_model
    if settings.precision == "int8":
        return replace(task_model, model=_int8(model))
    return replace(task_model, model=_half_precision(model, HALF_PRECISION[settings.precision]))


def _half_precision(model: SpeechModel, dtype: torch.dtype) -> SpeechModel:
    if isinstance(model, HalfPrecisionModel):
        return model.half_precision(dtype)
    return cast(SpeechModel, cast(nn.Module, copy.deepcopy(model)).to(dtype))


def _int8(model: SpeechModel) -> SpeechModel:
    if next(model.parameters()).device.type != "cpu":
        raise ModelError("decode.precision=int8 is for the CPU. Use bf16 on a GPU, or --device cpu.")
    return model.int8() if isinstance(model, QuantizedModel) else cast(SpeechModel, int8_copy(cast(nn.Module, model)))


def share(plan: Plan, world: World) -> Iterator[MicroBatchPlan]:
    """A rank's part of a plan, every size-th batch: as they go from long to short, the ranks get equal work."""
    every = (MicroBatchPlan(Position(), index, plan.order[start:end]) for index, start, end in _bounds(plan))
    return islice(every, world.rank, None, world.size)


def _bounds(plan: Plan) -> Iterator[tuple[int, int, int]]:
    return ((index, int(plan.bounds[index]), int(plan.bounds[index + 1])) for index in range(plan.micros))


def _decode_one(task_model: TaskModel, loaded: LoadedMicroBatch, settings: Search, world: World) -> DecodedBatch:
    rows = tuple(int(row) for row in loaded.micro.rows)
    problems = tuple(dropped.reason for dropped in loaded.dropped)
    if loaded.batch is None:
        return DecodedBatch(rows, (None,) * len(rows), problems)
    # Layers that are put together from ranks' slices take part in training too.
    with torch.no_grad() if is_sharded(task_model.model) else torch.inference_mode():
        found = iter(decode_batch(task_model, loaded.batch.to(world.device), settings))
    missing = {dropped.row for dropped in loaded.dropped}
    return DecodedBatch(rows, tuple(None if row in missing else next(found) for row in rows), problems)

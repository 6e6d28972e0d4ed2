"""Pad rows into a batch: with zeros, to the longest of each. Targets are only seen as tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from attune.errors import DataError
from attune.types import Batch, CachedFeatures, CachedRow, LoadedRow, Target, Targets, TokenTargets

PAGE = 4096  # bytes


def collate(rows: Sequence[LoadedRow]) -> Batch:
    """The rows as one batch."""
    audio = [torch.from_numpy(row.audio) for row in rows]
    targets = collate_targets([row.target for row in rows])
    cached = [row.cached for row in rows if row.cached]
    lengths = torch.tensor(
        [row.cached.samples if row.cached and row.cached.layers is not None else len(row.audio) for row in rows]
    )
    phrases = tuple(row.phrases for row in rows) if any(row.phrases for row in rows) else ()
    batch = Batch(tuple(row.id for row in rows), pad(audio), lengths, targets, phrases=phrases)
    return replace(batch, cached=_collate_cached(cached)) if len(cached) == len(rows) else batch


def _collate_cached(rows: Sequence[CachedRow]) -> CachedFeatures:
    """The features of a batch, where all rows have theirs."""
    keys = tuple(row.key for row in rows)
    layers = [row.layers for row in rows if row.layers is not None]
    if len(layers) < len(rows):
        return CachedFeatures(keys)
    counts = torch.tensor([each.shape[1] for each in layers])
    files = tuple(row.file for row in rows if row.file is not None)
    if get_worker_info() and len(files) == len(rows):  # the parent reads what this process brings into memory
        for each in layers:
            each.flatten().view(torch.uint8)[::PAGE].sum()
        return CachedFeatures(keys, None, counts, files)
    return CachedFeatures(keys, pad(layers), counts)


def collate_targets(targets: Sequence[Target]) -> Targets:
    """Token ids as `TokenTargets`; a task's own record of tensors as the same record of a batch."""
    first = targets[0]
    if isinstance(first, tuple):
        ids = [torch.tensor(_tokens(target), dtype=torch.int64) for target in targets]
        return TokenTargets(pad(ids), _lengths(ids))
    names = [each.name for each in fields(first)]
    return replace(first, **{name: pad([getattr(target, name) for target in targets]) for name in names})


def pad(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors whose sizes may differ, with zeros beyond the own size of each."""
    if any(tensor.ndim != tensors[0].ndim for tensor in tensors):
        raise DataError("The targets of a batch have tensors of different dimensions; they cannot be padded together.")
    sizes = [max(each) for each in zip(*(tensor.shape for tensor in tensors), strict=True)]
    padded = torch.zeros(len(tensors), *sizes, dtype=tensors[0].dtype)
    for row, tensor in zip(padded, tensors, strict=True):
        row[tuple(map(slice, tensor.shape))] = tensor
    return padded


def _lengths(rows: Iterable[Tensor]) -> Tensor:
    return torch.tensor([len(row) for row in rows])


def _tokens(target: Target) -> tuple[int, ...]:
    if not isinstance(target, tuple):
        raise DataError("Some targets of a batch are tokens, others are not. Let the codec return one kind.")
    return target

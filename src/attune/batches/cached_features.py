"""Features of a frozen upstream on their way into batches: read from their files by threads, a few batches ahead.

What the model has in its device's memory is not read again. Threads take turns with the model at the interpreter's
lock, and each turn costs both, so a batch is one operation of torch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from attune.batches.micro_batch import LoadedMicroBatch
from attune.types import CachedFeatures

FILES_OPEN = 256
READERS = 4  # threads: one copies a few GB a second, which is less than a head on a GPU learns from
AHEAD = 6  # batches


def with_features(micros: Iterable[LoadedMicroBatch], held: Container[str], pins: bool) -> Iterator[LoadedMicroBatch]:
    """The micro-batches in their order, with the features that their workers named files of."""
    if not pins:
        yield from (_read(each, pins) if _has_to_be_read(each, held) else each for each in micros)
        return
    waiting = deque[Future[LoadedMicroBatch]]()
    readers = ThreadPoolExecutor(READERS, initializer=_settle, initargs=(torch.cuda.current_device(),))
    try:
        for each in micros:
            if _has_to_be_read(each, held):
                waiting.append(readers.submit(_read, each, pins))
            else:
                waiting.append(Future())
                waiting[-1].set_result(each)
            while waiting and (waiting[0].done() or len(waiting) > AHEAD):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        readers.shutdown(cancel_futures=True)


def _settle(device: int) -> None:
    torch.cuda.set_device(device)  # whose driver pins memory
    torch.set_num_threads(1)  # the threads are what works at once


def _has_to_be_read(loaded: LoadedMicroBatch, held: Container[str]) -> bool:
    cached = loaded.batch.cached if loaded.batch else None
    return cached is not None and bool(cached.files) and not all(key in held for key in cached.keys)


def _read(loaded: LoadedMicroBatch, pins: bool) -> LoadedMicroBatch:
    """The micro-batch with the features in it."""
    batch = loaded.batch
    if batch is None or batch.cached is None:
        return loaded
    keys, files = batch.cached.keys, batch.cached.files
    layers = together([_opened(file).get_tensor(key) for key, file in zip(keys, files, strict=True)], pins)
    return replace(loaded, batch=replace(batch, cached=CachedFeatures(keys, layers, batch.cached.counts)))


def together(rows: Sequence[Tensor], pins: bool) -> Tensor:
    """Rows (L, F, D) as a batch (B, L, F, D), with zeros beyond the own frames of each."""
    first, longest = rows[0], max(row.shape[1] for row in rows)
    batch = torch.empty(len(rows), len(first), longest, first.shape[2], dtype=first.dtype, pin_memory=pins)
    zeros = first.new_zeros(longest * first.shape[2])
    parts = [part for row in rows for layer in row for part in (layer.flatten(), zeros[layer.numel() :])]
    torch.cat(parts, out=batch.view(-1))
    return batch


@lru_cache(FILES_OPEN)
def _opened(file: Path) -> Any:
    """A file of features, which never changes under its name."""
    return safe_open(file, "pt")

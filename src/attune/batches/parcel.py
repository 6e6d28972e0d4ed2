"""A micro-batch on its way from a worker to the parent, which is cheap for both.

A tensor in shared memory costs a new file, whose pages the kernel makes one by one, and a connection between the two.
So large tensors alone go there. Features of a frozen upstream, which are the largest and lie in files, are not sent at
all: the worker sees to it that the files' pages are in memory, and the parent copies from there (`cached_features`).
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attune.batches.micro_batch import LoadedMicroBatch

LARGE = 1 << 16  # bytes of a tensor that goes through shared memory
PLAIN = {torch.int64, torch.int32, torch.float32, torch.float64, torch.bool}  # that numpy has, too


@dataclass(frozen=True, slots=True)
class Parcel:
    """The bytes of a micro-batch without its large tensors, and those."""

    content: bytes
    large: tuple[Tensor, ...]

    def open(self) -> LoadedMicroBatch:
        """The micro-batch."""
        unpacker = _Unpacker(io.BytesIO(self.content))
        unpacker.large = self.large
        loaded: LoadedMicroBatch = unpacker.load()
        return loaded

    def pin_memory(self) -> LoadedMicroBatch:
        """The same in memory that a device can read while it computes; a loader calls this in a thread of its own."""
        return self.open().pin_memory()


def packed(loaded: LoadedMicroBatch) -> Parcel:
    """What a worker sends; where shared memory is full (64 MB in a container), all goes through the pipe.

    The queue would share tensors in a thread of its own, where an error is lost and the parent waits for ever.
    """
    content = io.BytesIO()
    packer = _Packer(content, LARGE)
    packer.dump(loaded)
    try:
        shared = tuple(each.share_memory_() for each in packer.large)  # type: ignore[no-untyped-call]
    except RuntimeError:  # no space left on the device
        content, shared = io.BytesIO(), ()
        _Packer(content, float("inf")).dump(loaded)
    return Parcel(content.getvalue(), shared)


class _Packer(pickle.Pickler):
    """Sets tensors of `least` bytes aside, and writes small ones as their numbers."""

    def __init__(self, file: io.BytesIO, least: float) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.least, self.large = least, list[Tensor]()

    def persistent_id(self, each: Any) -> int | None:
        """The place of a tensor that is set aside."""
        if not isinstance(each, Tensor) or each.nbytes < self.least:
            return None
        self.large.append(each)
        return len(self.large) - 1

    def reducer_override(self, each: Any) -> Any:
        """How a small tensor is made again; torch's own way takes a hundred times as long."""
        is_plain = isinstance(each, Tensor) and each.dtype in PLAIN
        return (torch.from_numpy, (each.numpy(),)) if is_plain else NotImplemented


class _Unpacker(pickle.Unpickler):
    large: tuple[Tensor, ...]

    def persistent_load(self, place: Any) -> Tensor:
        """A tensor that was set aside."""
        found: Tensor = self.large[place]
        return found

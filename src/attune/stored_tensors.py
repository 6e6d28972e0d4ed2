"""Tensors on disk, one at a time: read whole or some rows of them, wherever the rows lie; written as they come.

Nothing here ever has more than one tensor in memory, so that a model larger than the memory can be read, put together
and written.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from attune.errors import ModelError
from attune.files import Checksum, LargeFile

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ALIGNED = 8  # bytes, to which the format pads its header


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Rows of a tensor, in a safetensors file under the tensor's name."""

    file: str
    first: int
    rows: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What is known of a tensor without reading it; its parts follow one another, and all together are the whole."""

    dtype: str  # as safetensors names it
    shape: tuple[int, ...]
    parts: tuple[StoredPart, ...]


class StoredTensors(Mapping[str, Tensor]):
    """Tensors by name, each read from its files when it is asked for, and not kept."""

    def __init__(self, folder: Path, listed: Mapping[str, StoredTensor]) -> None:
        self._folder, self._listed = folder, listed

    def __getitem__(self, name: str) -> Tensor:
        shape = self._listed[name].shape
        return self.rows(name, 0, shape[0] if shape else 1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def stored(self, name: str) -> StoredTensor:
        """Shape, type and parts of a tensor."""
        return self._listed[name]

    def rows(self, name: str, first: int, last: int) -> Tensor:
        """Some rows of a tensor; of all its bytes, only these are read."""
        listed = self._listed[name]
        if not listed.shape:
            return self._read(listed.parts[0].file, name, None)
        found = torch.empty((last - first, *listed.shape[1:]), dtype=DTYPES[listed.dtype])
        for part in listed.parts:
            start, end = max(first, part.first), min(last, part.first + part.rows)
            if start < end:
                place = slice(start - part.first, end - part.first)
                found[start - first : end - first] = self._read(part.file, name, place)
        return found

    def _read(self, file: str, name: str, rows: slice | None) -> Tensor:
        with _explained(self._folder / file), safe_open(self._folder / file, "pt") as opened:
            found: Tensor = opened.get_tensor(name).clone() if rows is None else opened.get_slice(name)[rows]
            return found


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not a valid safetensors file: {' '.join(str(error).split())}") from error


def open_tensors(path: Path) -> StoredTensors:
    """The tensors of one safetensors file."""
    with _explained(path), safe_open(path, "pt") as opened:
        listed = {name: _listed(opened.get_slice(name), path.name) for name in opened.keys()}  # noqa: SIM118
    return StoredTensors(path.parent, listed)


def _listed(found: Any, file: str) -> StoredTensor:
    shape = tuple(found.get_shape())
    return StoredTensor(found.get_dtype(), shape, (StoredPart(file, 0, shape[0] if shape else 1),))


@dataclass(frozen=True, slots=True)
class TensorToWrite:
    """A tensor that is about to be written: what it will be, and how to write its bytes when its turn comes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    use: Callable[[Callable[[Tensor], None]], None]  # calls what it is given with the tensor

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorToWrite":
        """One that is there."""
        return cls(tensor.dtype, tuple(tensor.shape), lambda write: write(tensor))


def write_tensors(path: Path, tensors: Mapping[str, TensorToWrite], metadata: Mapping[str, str] | None = None) -> str:
    """Write a safetensors file tensor by tensor, fsynced; returns its checksum."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    found = Checksum()
    with LargeFile(path) as file:

        def put(content: bytes | memoryview) -> None:
            found.update(content)
            file.write(content)

        put(_header(names, tensors, metadata))
        for name in names:
            tensors[name].use(lambda tensor: put(_bytes_of(tensor)))
    return str(found)


def _header(names: Iterable[str], tensors: Mapping[str, TensorToWrite], metadata: Mapping[str, str] | None) -> bytes:
    listed: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        each = tensors[name]
        start, end = end, end + math.prod(each.shape) * each.dtype.itemsize
        listed[name] = {"dtype": DTYPE_NAMES[each.dtype], "shape": each.shape, "data_offsets": (start, end)}
    header = json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % ALIGNED)
    return struct.pack("<Q", len(header)) + header


def _bytes_of(tensor: Tensor) -> memoryview:
    plain = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return plain.numpy().data

"""Files of tensors that others wrote, read as data: nothing in them is executed, and none outgrows its own bytes.

A file may lie about everything: sizes that it does not have, tensors that repeat one number a billion times, tuples
within tuples whose hash takes forever. What torch does not check is checked here, before or right after it reads.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from attune.errors import ModelError

MOST_PICKLE_BYTES = 16_000_000  # names and shapes; 10,000 tensors need a few million
MOST_SHARING = 4  # tensors may share memory, as tied weights do, so that all together they have more than the file
LEGACY_PICKLES = 5  # before the numbers, in a file of torch before 1.6
_TUPLES = {"TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}  # by how many values; 0 stands for any number
_NUMBERS = {"BINFLOAT", "BININT", "BININT1", "BININT2"}


class BadTensorFile(Exception):
    """Why a file of torch's is refused, as half a sentence."""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:  # of types that torch does not have
        raise ModelError(f"{path} is not a valid safetensors file: {' '.join(str(error).split())}") from error


def write_safetensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file with the permissions of any new file; the library gives it to its owner alone."""
    path.touch()
    mode = path.stat().st_mode
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    path.chmod(mode)


class ForeignRecord:
    """What is read in place of an object of a class that is not here: its values, and nothing that it could do."""

    def __init__(self, *values: object) -> None:
        self.values: dict[str, object] = {}

    def __setstate__(self, state: object) -> None:
        self.values = dict(state) if isinstance(state, dict) else {}


def read_pickled(file: IO[bytes], size: int, toolkits: tuple[str, ...] = ()) -> object:
    """What `torch.save` wrote into a file of so many bytes; if it is damaged, BadTensorFile or what torch raises.

    Objects of classes in the packages `toolkits` are read as a ForeignRecord of their values; no class is imported.
    """
    if zipfile.is_zipfile(file):
        named = _check_zip(file, size)
    else:
        file.seek(0)
        named = {name for _ in range(LEGACY_PICKLES) for name in _check_pickle(file)}
    file.seek(0)
    foreign: list[Any] = [(ForeignRecord, name) for name in sorted(named) if name.partition(".")[0] in toolkits]
    with torch.serialization.safe_globals(foreign):
        return torch.load(file, map_location="cpu", weights_only=True)


def require_bounded(tensors: Mapping[str, Tensor], size: int) -> None:
    """Refuse tensors that are not plain numbers in memory, or that have more of them than a file of `size` bytes."""
    for name, tensor in tensors.items():
        is_plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_complex()
        if not is_plain or tensor.device.type != "cpu":
            raise BadTensorFile(f"{name!r:.80} is sparse, quantized, complex or empty; expected plain numbers")
        if tensor.nbytes > tensor.untyped_storage().nbytes():
            raise BadTensorFile(
                f"{name!r:.80} claims {tensor.nbytes:,} bytes, but {tensor.untyped_storage().nbytes():,} are stored"
            )
    total = sum(tensor.nbytes for tensor in tensors.values())
    if total > MOST_SHARING * size:
        raise BadTensorFile(f"its tensors claim {total:,} bytes, but the file has {size:,}")


def _check_zip(file: IO[bytes], size: int) -> set[str]:
    """Sizes and checksums, which torch does not look at, and the pickle in it; returns the classes that it names."""
    named: set[str] = set()
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if min((member.header_offset for member in members), default=0):  # torch would read what comes before
            raise BadTensorFile("it begins with something else than its first member. Download it again")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise BadTensorFile("its members are compressed; torch writes them uncompressed")
        if sum(member.file_size for member in members) > size:
            raise BadTensorFile("its members claim more bytes than the file has")
        damaged = archive.testzip()
        if damaged is not None:
            raise BadTensorFile(f"the checksum of {damaged!r:.80} is wrong. Download it again")
        for member in members:
            if member.filename.endswith(".pkl"):
                with archive.open(member) as pickled:
                    named |= _check_pickle(pickled)
    return named


def _check_pickle(pickled: IO[bytes]) -> set[str]:
    """Refuse a tuple that is used twice: of tuples within tuples, a hash would take forever.

    Of numbers alone it may be: the parts of an optimizer have their betas in common. Returns the classes it names.
    """
    tuples: set[object] = set()
    named: set[str] = set()
    recent = deque[str](maxlen=4)
    for opcode, argument, place in pickletools.genops(pickled):
        if (place or 0) > MOST_PICKLE_BYTES:
            raise BadTensorFile(f"its list of tensors has more than {MOST_PICKLE_BYTES:,} bytes")
        if opcode.name in ("BINPUT", "LONG_BINPUT"):
            (tuples.add if _may_hold_tuples(recent) else tuples.discard)(argument)
        elif opcode.name in ("BINGET", "LONG_BINGET") and argument in tuples:
            raise BadTensorFile("it has a tuple in several places; expected tensors by name only")
        elif opcode.name == "GLOBAL":
            named.add(str(argument).replace(" ", "."))
        recent.append(opcode.name)
    return named


def _may_hold_tuples(recent: Sequence[str]) -> bool:
    """Whether the last of these steps made a tuple of more than a few numbers."""
    *before, last = recent or [""]
    count = _TUPLES.get(last)
    return count is not None and not (0 < count <= len(before) and {*before[-count:]} <= _NUMBERS)

"""`.nemo` files: tar archives of a configuration, tensors and tokenizer files, read as data and written back.

Nothing is unpacked under a name from the archive, and nothing in it is executed: members are found by name, must be
plain files of a sensible size, tensors are read with `weights_only`, and the configuration as plain values.
"""

from __future__ import annotations

import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import torch
from torch import Tensor

from attune.errors import ModelError
from attune.files import completed
from attune.plain_yaml import Plain, read_data
from attune.sources import TarHeader, require_size
from attune.tensor_files import BadTensorFile, read_pickled, require_bounded

CONFIG, WEIGHTS = "model_config.yaml", "model_weights.ckpt"
MOST_MEMBERS = 1000
MOST_CONFIG_BYTES, MOST_FILE_BYTES = 8_000_000, 64_000_000  # a configuration; a tokenizer's file
MOST_GROWTH = 100  # of a compressed archive: what grows more is made to fill the memory
MOST_PADDING = 1_000_000  # bytes after the last member
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
MOST_REFERENCES = 10  # that lead to one another
MOST_VALUES = 500_000  # once references are replaced


@dataclass(frozen=True, slots=True)
class Archive:
    """What is in a `.nemo` file."""

    config: Mapping[str, Plain]
    config_text: str
    tensors: Mapping[str, Tensor]
    files: Mapping[str, bytes]  # the tokenizer's, by the names they have in the archive


def read_archive(path: Path) -> Archive:
    """Read a `.nemo` file as data; whatever in it is not what it should be is refused."""
    try:
        with tarfile.open(path, "r:*", tarinfo=TarHeader) as tar:
            members = _members(tar, path)
            _read_to_the_end(tar, path)
            text = _read(tar, _named(members, CONFIG, path), MOST_CONFIG_BYTES, path).decode("utf-8")
            config = resolved(_as_section(read_data(text, f"{path}:{CONFIG}"), path))
            tensors = _tensors(tar, _named(members, WEIGHTS, path), path)
            wanted = sorted(set(tokenizer_files(config).values()))
            files = {name: _read(tar, _named(members, name, path), MOST_FILE_BYTES, path) for name in wanted}
    except (OSError, EOFError, tarfile.TarError, zlib.error, lzma.LZMAError, ValueError, MemoryError) as error:
        raise ModelError(f"{path} is not a valid .nemo archive: {_reason(error)}. Download it again.") from error
    return Archive(config, text, tensors, files)


def _reason(error: Exception) -> str:
    """One line: tarfile lists every way in which it tried to open the file, and what each of them met."""
    claim = re.search(r"its header claims -?[\d,]+ bytes", str(error))
    return claim[0] if claim else str(error).partition(":\n")[0]


def write_archive(path: Path, archive: Archive) -> None:
    """Write a `.nemo` file that NeMo can restore."""
    weights = io.BytesIO()
    torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in archive.tensors.items()}, weights)
    contents = {CONFIG: archive.config_text.encode(), WEIGHTS: weights.getvalue(), **archive.files}
    with completed(path) as partial, tarfile.open(partial, "w:") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def tokenizer_files(config: Mapping[str, Plain]) -> dict[str, str]:
    """The member that each tokenizer setting names, such as `model_path`."""
    tokenizer = config.get("tokenizer")
    if not isinstance(tokenizer, dict):
        return {}
    named = {key: value for key, value in tokenizer.items() if isinstance(value, str) and value.startswith("nemo:")}
    return {key: value.removeprefix("nemo:") for key, value in named.items()}


def resolved(config: Mapping[str, Plain]) -> dict[str, Plain]:
    """The configuration with its `${a.b}` replaced by what they point at; anything cleverer is left as it is."""

    count = 0

    def resolve(value: Plain, depth: int) -> Plain:
        nonlocal count
        count += 1
        if count > MOST_VALUES:
            raise ModelError(f"References in the configuration expand to more than {MOST_VALUES:,} values.")
        if isinstance(value, dict):
            return {key: resolve(child, depth) for key, child in value.items()}
        if isinstance(value, list):
            return [resolve(child, depth) for child in value]
        match = REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if not match:
            return value
        if depth == MOST_REFERENCES:
            raise ModelError(f"{value} in the configuration refers to itself.")
        found = _find(config, match[1])
        return value if found is None else resolve(found, depth + 1)

    return {key: resolve(value, 0) for key, value in config.items()}


def _find(config: Mapping[str, Plain], key: str) -> Plain:
    """The value of a dotted key; a saved configuration is the `model` section of the one it was written in."""
    value: Plain = dict(config)
    for name in key.removeprefix("model.").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _as_section(config: Plain, path: Path) -> dict[str, Plain]:
    if not isinstance(config, dict):
        raise ModelError(f"{CONFIG} in {path} is not a mapping of settings.")
    return config


def _members(tar: tarfile.TarFile, path: Path) -> dict[str, tarfile.TarInfo]:
    members: dict[str, tarfile.TarInfo] = {}
    left = max(MOST_FILE_BYTES, MOST_GROWTH * path.stat().st_size)
    for member in map(require_size, tar):
        left -= member.size
        if left < 0:  # before it is skipped, which would decompress it
            raise ModelError(
                f"{path} is refused: with its member {member.name!r} ({member.size:,} bytes) it unpacks to more "
                f"than {MOST_GROWTH} times its size."
            )
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise ModelError(f"{path} is refused: its member {member.name!r} points out of the archive.")
        if not (member.isfile() or member.isdir()) or member.issparse():
            raise ModelError(f"{path} is refused: its member {member.name!r} is a link or a device, not a plain file.")
        if str(name) in members or len(members) == MOST_MEMBERS:
            raise ModelError(f"{path} is refused: it has {member.name!r} twice, or more than {MOST_MEMBERS} members.")
        if member.isfile():
            members[str(name)] = member
    return members


def _read_to_the_end(tar: tarfile.TarFile, path: Path) -> None:
    """Past the last member, where a compressed file has its checksum: only a reader that arrives there compares it."""
    left = MOST_PADDING
    while tar.fileobj and (content := tar.fileobj.read(1 << 16)):
        left -= len(content)
        if left < 0:
            raise ModelError(f"{path} is refused: more than {MOST_PADDING:,} bytes come after its last member.")


def _named(members: Mapping[str, tarfile.TarInfo], name: str, path: Path) -> tarfile.TarInfo:
    if name not in members:
        raise ModelError(f"{path} has no {name}. Is it a complete .nemo file?")
    return members[name]


def _open(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int, path: Path) -> IO[bytes]:
    if member.size > most:
        raise ModelError(
            f"{path} is refused: its member {member.name!r} has {member.size:,} bytes; at most {most:,} are allowed."
        )
    file = tar.extractfile(member)
    if file is None:
        raise ModelError(f"{path} is refused: its member {member.name!r} is not a file.")
    return file


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int, path: Path) -> bytes:
    return _open(tar, member, most, path).read()


def _tensors(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> dict[str, Tensor]:
    content = _read(tar, member, MOST_GROWTH * path.stat().st_size, path)
    try:
        tensors = read_pickled(io.BytesIO(content), len(content))
    except Exception as error:  # damaged bytes make unpickling fail in any way
        raise ModelError(
            f"{path} is refused: {WEIGHTS} in it is not a plain file of tensors. "
            f"({str(error).partition(chr(10))[0] or type(error).__name__})"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in tensors.items()
    ):
        raise ModelError(f"{path} is refused: {WEIGHTS} in it is not a plain dictionary of tensors.")
    try:
        require_bounded(tensors, len(content))
    except BadTensorFile as error:
        raise ModelError(f"{path} is refused: {WEIGHTS} in it is not a plain file of tensors: {error}.") from error
    return tensors

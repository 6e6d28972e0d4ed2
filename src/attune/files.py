"""A file under its final name is complete: written beside, fsynced, then renamed."""

import errno
import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attune.errors import AttuneError, DataError


@contextmanager
def completed(path: Path) -> Iterator[Path]:
    """Yield a path to write beside `path`; on success it is fsynced and takes the name, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.part"
    try:
        yield partial
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace the whole file at once, so that no reader ever sees half of it."""
    with completed(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def explain_write_errors(path: Path, remedy: str, kind: type[AttuneError] = DataError) -> Iterator[None]:
    """Turn an OSError into a message with the path, the reason and what to do."""
    try:
        yield
    except OSError as error:
        raise kind(f"Cannot write {path}: {error.strerror or error}. {remedy}") from error


def require_writable(path: Path, remedy: str) -> None:
    """Check before long work that a file can be written; its folder is created."""
    with explain_write_errors(path, remedy):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        probe = path.parent / f".{path.name}.{uuid.uuid4().hex[:8]}.part"
        try:
            probe.touch()
        finally:
            probe.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

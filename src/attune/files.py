"""A file under its final name is complete: written beside, fsynced, then renamed."""

import errno
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attune.errors import AttuneError, DataError

LOOK_SECONDS = 0.2


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


@contextmanager
def growing(folder: Path, report: Callable[[int], None]) -> Iterator[None]:
    """Report now and then how many bytes are in a folder that is being written."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_SECONDS):
            report(folder_bytes(folder))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def folder_bytes(folder: Path) -> int:
    """The size of all files in a folder, which may come and go."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""A file under its final name is complete: written beside, fsynced, then renamed."""

import errno
import fcntl
import hashlib
import io
import json
import mmap
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import xxhash

from attune.errors import DISK_FULL, AttuneError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOOK_SECONDS = 0.2
DIRECT = getattr(os, "O_DIRECT", 0)  # Linux has it
BUFFER_BYTES = 8 << 20  # a multiple of every disk's block
LONGEST_STEM = 200  # characters of a file's name
CHECKSUM = "xxh3_128:"  # what one begins with


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
    except OSError as error:
        if error.errno in DISK_FULL and error.filename is None:
            error.filename = str(path)  # a write that fails does not say which disk is full
        raise
    finally:
        partial.unlink(missing_ok=True)


class _Failed(Exception):
    """The first failure of a copy; shutil would go on, and raise a list of all without their numbers."""


def copy_tree(
    source: Path,
    to: Path,
    copy: Callable[[str, str], object] = shutil.copyfile,
    ignore: Callable[[str, list[str]], Iterable[str]] | None = None,
    may_exist: bool = False,
) -> None:
    """Copy a folder; the first file that cannot be copied is the error."""

    def copy_one(file: str, target: str) -> None:
        try:
            copy(file, target)
        except OSError as error:
            if error.errno in DISK_FULL:
                error.filename, error.filename2 = target, None
            raise _Failed from error

    try:
        shutil.copytree(source, to, copy_function=copy_one, ignore=ignore, dirs_exist_ok=may_exist)
    except _Failed as failed:
        raise failed.__cause__ or failed from None


def file_stem(name: str) -> str:
    """A name without what the name of a file cannot have; a long one ends in a hash of all of it."""
    quoted = quote(name, safe=" ")
    if len(quoted) <= LONGEST_STEM:
        return quoted
    mark = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:16]
    return f"{quoted[:LONGEST_STEM]}-{mark}"


def split_lines(text: str) -> list[str]:
    """The lines of a file of JSON lines; unlike splitlines(), not cut where a text has a separator of its own."""
    return text.removesuffix("\n").split("\n") if text else []


def parse_json(text: str | bytes) -> Any:
    """The value of a text that somebody else wrote; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error


def write_text(path: Path, text: str) -> None:
    """Replace the whole file at once, so that no reader ever sees half of it."""
    with completed(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_array(path: Path, array: "NDArray[np.generic]") -> None:
    """Replace the whole file (.npy) at once; numpy does not say why it could not write to a disk."""
    import numpy as np  # most who write files have no arrays

    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    with completed(path) as partial:
        partial.write_bytes(content.getbuffer())


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


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait for whoever is in here with the same lock file; the kernel lets the next one in when its holder dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sync(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LargeFile:
    """A new file of gigabytes, written from its start past the page cache where the file system allows that.

    Copying into the page cache takes most of what writing costs the processor, which belongs to training.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor, self._is_direct = _open_new(path)
        self._buffer = mmap.mmap(-1, BUFFER_BYTES)  # direct writes need memory that begins with a page
        self._filled = 0

    def __enter__(self) -> "LargeFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._go_through_the_cache()  # the end is no whole block
                self._flush()
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def write(self, content: bytes | memoryview) -> None:
        """Append; the bytes are on disk when the file is closed."""
        rest = memoryview(content)
        while rest:
            taken = min(len(rest), BUFFER_BYTES - self._filled)
            self._buffer[self._filled : self._filled + taken] = rest[:taken]
            self._filled, rest = self._filled + taken, rest[taken:]
            if self._filled == BUFFER_BYTES:
                self._flush()

    def _flush(self) -> None:
        with memoryview(self._buffer) as whole, whole[: self._filled] as rest:
            written = 0
            while written < self._filled:
                written += self._write(rest[written:])
        self._filled = 0

    def _write(self, content: memoryview) -> int:
        try:
            return os.write(self._descriptor, content)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._is_direct:
                raise
            self._go_through_the_cache()  # some file systems open so and then refuse, or want other blocks
            return os.write(self._descriptor, content)

    def _go_through_the_cache(self) -> None:
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~DIRECT)
        self._is_direct = False


def _open_new(path: Path) -> tuple[int, bool]:
    """A descriptor, and whether it goes past the page cache."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags | DIRECT, 0o666), bool(DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:  # what file systems in memory answer
            raise
        return os.open(path, flags, 0o666), False


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


class Checksum:
    """XXH3 over 128 bits, at the speed of memory: against damage, where SHA-256 would take its time from training."""

    def __init__(self) -> None:
        self._digest = xxhash.xxh3_128()

    def update(self, content: bytes | memoryview) -> None:
        """Go on with these bytes."""
        self._digest.update(content)

    def __str__(self) -> str:
        return f"{CHECKSUM}{self._digest.hexdigest()}"


def checksum(path: Path) -> str:
    """The checksum of a file's bytes, as a manifest has it."""
    found = Checksum()
    with path.open("rb") as file:
        while block := file.read(BUFFER_BYTES):
            found.update(block)
    return str(found)


def has_checksum(path: Path, expected: object) -> bool:
    """Whether a file is what a manifest says; those of older checkpoints have its SHA-256."""
    found = checksum(path) if str(expected).startswith(CHECKSUM) else sha256(path)
    return found == expected

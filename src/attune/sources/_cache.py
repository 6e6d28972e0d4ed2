"""Fetched files, by content. A file in the cache under its final name is complete and verified.

objects/     every file once, named by its SHA-256            index/   the files of each source, when last listed
files/ trees/  the same files under their own names (links)   parts/   incomplete downloads   locks/   on sources
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from attune.errors import SourceError
from attune.files import parse_json, sha256, sync, write_text
from attune.secrets import shown
from attune.sources._retry import RetryPolicy
from attune.sources._verify import checked_sha256

FORMAT = 1
HASHED_BYTES = 4 << 30  # of what a run is locked to, each time: seconds; `attune cache verify` looks at all
FRESH_SECONDS = 60.0  # ranks and commands that start together ask a server once


@dataclass(frozen=True, slots=True)
class File:
    """The content of a file, and its server's name for this version."""

    sha256: str
    size: int
    version: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One state of a source: its files by their paths, and the server's name for this state."""

    source: str
    revision: str
    files: Mapping[str, File]
    is_folder: bool = False

    @property
    def size(self) -> int:
        """All bytes together."""
        return sum(file.size for file in self.files.values())


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """How much of a file has been downloaded, scanned, written or uploaded, and why it goes no further just now."""

    source: str
    done: int
    total: int | None
    stalled: str = ""
    verb: str = "downloading"


def entry_from(saved: Mapping[str, Any]) -> Entry:
    """An entry as it was read from JSON, which may be somebody else's; earlier versions wrote some credentials."""
    files = {name: File(**file) for name, file in saved["files"].items()}
    for name, file in files.items():
        checked_sha256(file.sha256)
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} is outside its folder")
    return Entry(shown(saved["source"]), saved["revision"], files, saved["is_folder"])


def short_hash(*words: str) -> str:
    """A name for words that could not be a file's name."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


Watch = Callable[[TransferProgress], None]


def unwatched(progress: TransferProgress) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of fetched files, and how to use it: off the network, or with versions that a run was locked to."""

    folder: Path
    is_offline: bool = False
    retry: RetryPolicy = RetryPolicy()
    watch: Watch = unwatched
    locked: Mapping[str, Entry] = field(default_factory=dict)
    used: dict[str, Entry] = field(default_factory=dict)  # filled by `fetch`, for a run's lock file

    def object(self, sha256: str) -> Path:
        """Where the file with this content is, or would be."""
        return self.folder / "objects" / sha256[:2] / sha256[2:]

    def has(self, entry: Entry) -> bool:
        """Whether every file of the entry is here."""
        return all(_size(self.object(file.sha256)) == file.size for file in entry.files.values())

    def is_intact(self, entry: Entry) -> bool:
        """Whether every file of the entry is here with the content it was locked with; what has another is removed."""
        if not self.has(entry):
            return False
        names = [file.sha256 for file in entry.files.values()] if entry.size <= HASHED_BYTES else []
        damaged = [name for name in names if sha256(self.object(name)) != name]
        for name in damaged:
            self.object(name).unlink(missing_ok=True)
        if damaged:
            shutil.rmtree(self.place_of(entry).parent, ignore_errors=True)
        return not damaged

    def part(self, source: str, name: str) -> Path:
        """Where a file of a source is written while it is incomplete."""
        return self.folder / "parts" / f"{short_hash(source, name)}.part"

    def index(self, source: str) -> Path:
        """Where the files of a source are recorded."""
        return self.folder / "index" / f"{short_hash(source)}.json"

    def known(self, source: str) -> tuple[Entry, float] | None:
        """The source when last listed, and when that was; None if a file of it is missing."""
        try:
            saved = parse_json(self.index(source).read_bytes())
            entry = entry_from(saved)
            if saved["format"] != FORMAT or entry.source != source or not self.has(entry):
                return None
        except (OSError, ValueError, KeyError, TypeError):  # absent, damaged or of another version: fetched again
            return None
        return entry, float(saved["checked"])

    def remember(self, entry: Entry) -> None:
        """Record the present files of a source."""
        saved = {"format": FORMAT, "checked": time.time(), **asdict(entry)}
        write_text(self.index(entry.source), json.dumps(saved, indent=1) + "\n")

    def place(self, entry: Entry) -> Path:
        """The entry's file or folder under its own name; it is touched, and its index, so that it counts as used."""
        try:
            if self.index(entry.source).exists():
                os.utime(self.index(entry.source))
            path = self._place_folder(entry) if entry.is_folder else self._place_file(entry)
            os.utime(path.parent)
            return path
        except OSError as error:
            raise self.cannot_write(entry.source, error) from error

    def place_of(self, entry: Entry) -> Path:
        """Where `place` puts an entry: a name for the content, then the file's or folder's own."""
        if not entry.is_folder:
            ((name, file),) = entry.files.items()
            return self.folder / "files" / file.sha256[:32] / name
        content = short_hash(*(f"{name} {file.sha256}" for name, file in sorted(entry.files.items())))
        return self.folder / "trees" / content / _folder_name(entry.source)

    def _place_file(self, entry: Entry) -> Path:
        ((_, file),) = entry.files.items()
        path = self.place_of(entry)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _link(self.object(file.sha256), path)
        return path

    def _place_folder(self, entry: Entry) -> Path:
        path = self.place_of(entry)
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.parent / f".{uuid.uuid4().hex[:8]}.part"
        try:
            for name, file in entry.files.items():
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                _link(self.object(file.sha256), partial / name)
            sync(partial)
            if not path.exists():
                partial.rename(path)
        except OSError:
            if not path.exists():  # if it does, another process was quicker with the same folder
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return path

    @contextmanager
    def fetching(self, source: str) -> Iterator[None]:
        """Keep other processes from fetching the same source; the kernel opens the lock when its holder dies."""
        path = self.folder / "locks" / short_hash(source)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = _taken(path)
        except OSError as error:
            raise self.cannot_write(source, error) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(lock)

    def require_network(self, source: str) -> None:
        """Refuse to fetch when offline."""
        if self.is_offline:
            raise SourceError(
                f"{source} is not in the cache {self.folder}, and --offline (ATTUNE_OFFLINE) is set. Download it "
                "first with a network: attune fetch RECIPE"
            )

    def cannot_write(self, source: str, error: OSError) -> SourceError:
        """The error for a disk that refuses a write."""
        return SourceError(
            f"Cannot write {source} to {self.folder}: {error.strerror or error}. Free some space, or set "
            "ATTUNE_CACHE to another folder."
        )

    def locked_to(self, entries: Mapping[str, Entry]) -> "Cache":
        """The same cache, with these sources held to exactly these versions."""
        return replace(self, locked=entries)


def _taken(path: Path) -> int:
    """The descriptor of a lock that this process holds; holders remove the file, so it may have to be made anew."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _link(target: Path, path: Path) -> None:
    """A second name for a file; a copy where the file system has no such thing."""
    try:
        os.link(target, path)
    except FileExistsError:
        return
    except OSError:
        beside = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex[:8]}.part")
        shutil.copy(target, beside)
        beside.replace(path)


def _folder_name(source: str) -> str:
    name = source.partition("#")[0].rstrip("/").rpartition("/")[2]
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name).lstrip(".") or "folder"

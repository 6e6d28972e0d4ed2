"""The one fetcher: a part is begun or gone on with, its size and hash are verified, then it takes its name.

A source says what there is to fetch (a Listing of Remotes) and how to open each from any byte on. Everything else
happens here: one process at a time for each source, new tries with growing waits, resuming, verifying.
"""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from attune.errors import SourceError
from attune.files import sync
from attune.sources._archive import require_inside
from attune.sources._cache import FRESH_SECONDS, Cache, Entry, File, Patience, Progress, short_hash
from attune.sources._verify import Corrupt, Hashes, sha256_if

CORRUPTIONS = 3  # so many wrong copies of a file are no accident
THREADS = 8
CHUNK = 1 << 20
T = TypeVar("T")


class TryAgain(Exception):
    """A failure that may pass; `after` is how long the server asked to be left alone."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


class StartOver(TryAgain):
    """A failure that only the first byte can mend: what came is of another version."""


class Unchanged(Exception):
    """The server still has the version that was asked about."""


@dataclass(frozen=True, slots=True)
class Body:
    """A file as it comes, from byte `start` on."""

    chunks: Iterator[bytes]
    start: int
    size: int | None  # of the whole file
    version: str | None  # what to ask for when going on; without it nothing can be resumed
    hashes: Hashes = Hashes()


@dataclass(frozen=True, slots=True)
class Remote:
    """A file far away. `open(start, version)` gives all of it when there is another version by now."""

    open: Callable[[int, str | None], AbstractContextManager[Body]]
    size: int | None = None
    version: str | None = None
    hashes: Hashes = Hashes()


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source is now. Without a revision, the versions of its files stand for one."""

    files: Mapping[str, Remote]
    revision: str | None = None
    is_folder: bool = False


# Looks at the server for what a source is: as it was locked, or else now; given what is known, it may say Unchanged.
Ask = Callable[[Entry | None, Entry | None], Listing]


def bring(source: str, ask: Ask, cache: Cache, is_fixed: bool = False) -> Path:
    """The source's file or folder in the cache, fetched if need be by `ask(known, locked)`.

    A source that `is_fixed` can never be anything else, and is not asked about again.
    """
    return cache.place(entry_of(source, ask, cache, is_fixed))


def with_file(ask: Ask, name: str, own: Entry) -> Ask:
    """Ask for a folder, and put a file into it that is here already."""
    file = next(iter(own.files.values()))

    def ask_all(known: Entry | None, locked: Entry | None) -> Listing:
        listing = ask(known if known and known.files.get(name) == file else None, locked)
        here = Remote(_never, file.size, file.version, Hashes(sha256=file.sha256))
        return Listing({**listing.files, name: here}, listing.revision, is_folder=True)

    return ask_all


def _never(start: int, version: str | None) -> AbstractContextManager[Body]:
    raise TryAgain("it was removed from the cache on the way")


def entry_of(source: str, ask: Ask, cache: Cache, is_fixed: bool = False) -> Entry:
    """What `bring` places."""
    entry = _ready(source, cache, is_fixed)
    if entry is None:
        cache.require_network(source)
        with cache.fetching(source):
            entry = _ready(source, cache, is_fixed) or _refresh(source, ask, cache)
    cache.used[source] = entry
    return entry


def _ready(source: str, cache: Cache, is_fixed: bool) -> Entry | None:
    """What needs no network: the locked version, or what was found a moment ago."""
    locked = cache.locked.get(source)
    if locked:
        return locked if cache.has(locked) else None
    known = cache.known(source)
    if known and (is_fixed or cache.is_offline or time.time() - known[1] < FRESH_SECONDS):
        return known[0]
    return None


def _refresh(source: str, ask: Ask, cache: Cache) -> Entry:
    locked, found = cache.locked.get(source), cache.known(source)
    known = found[0] if found else None
    try:
        listing = asked(source, lambda: ask(None if locked else known, locked), cache.patience)
        entry = _fetch_all(source, listing, locked or known, cache)
    except Unchanged:
        if known is None:
            raise SourceError(f"{source}: the server speaks of a version that is not here. Try again.") from None
        entry = known
    except OSError as error:
        raise cache.cannot_write(source, error) from error
    except SourceError as error:
        if known is None or locked:
            raise
        raise SourceError(f"{error} An earlier version is in the cache; --offline uses it as it is.") from error
    if locked:
        _require_same(entry, locked)
        return locked
    cache.remember(entry)
    return entry


def _require_same(entry: Entry, locked: Entry) -> None:
    changed = [name for name, file in locked.files.items() if entry.files[name].sha256 != file.sha256]
    if changed:
        raise SourceError(
            f"{entry.source} is not what it was when it was locked ({locked.revision or 'no revision'}): "
            f"{', '.join(changed[:3])} changed. Find that version elsewhere, or start a new run without the lock."
        )


def asked(source: str, question: Callable[[], T], patience: Patience) -> T:
    """The answer to a question that may fail for a while."""
    failures = 0
    while True:
        try:
            return question()
        except TryAgain as failure:
            failures += 1
            _wait(source, failure, failures, patience)


def _fetch_all(source: str, listing: Listing, before: Entry | None, cache: Cache) -> Entry:
    remotes = dict(listing.files)
    if cache.locked.get(source):
        remotes = {name: remotes[name] for name in _require_all(cache.locked[source], remotes)}
    for name in remotes:
        require_inside(name, source)
    _require_room(source, remotes, cache)
    with ThreadPoolExecutor(THREADS) as pool:
        fetches = {
            name: pool.submit(_fetch, _Fetch(source, name, listing.is_folder, remote, cache), before)
            for name, remote in remotes.items()
        }
        try:
            files = {name: fetch.result() for name, fetch in fetches.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    versions = [file.version or file.sha256 for file in files.values()]
    revision = listing.revision or (short_hash(*versions) if listing.is_folder else versions[0])
    return Entry(source, revision, files, listing.is_folder)


def _require_all(locked: Entry, remotes: Mapping[str, Remote]) -> list[str]:
    gone = [name for name in locked.files if name not in remotes]
    if gone:
        raise SourceError(f"{locked.source} no longer has {', '.join(gone[:3])}, which it had when it was locked.")
    return list(locked.files)


def _require_room(source: str, remotes: Mapping[str, Remote], cache: Cache) -> None:
    cache.folder.mkdir(parents=True, exist_ok=True)
    needed = sum(remote.size or 0 for remote in remotes.values())
    free = shutil.disk_usage(cache.folder).free
    if needed > free:
        raise SourceError(
            f"{source} has {needed / 1e9:.1f} GB, and {cache.folder} has room for {free / 1e9:.1f} GB. "
            "Make room there (attune cache prune), or name another folder in ATTUNE_CACHE."
        )


@dataclass(frozen=True, slots=True)
class _Fetch:
    """One file on its way."""

    source: str
    name: str
    is_in_folder: bool
    remote: Remote
    cache: Cache

    @property
    def address(self) -> str:
        """The file as messages name it."""
        return f"{self.source.rstrip('/')}/{self.name}" if self.is_in_folder else self.source

    @property
    def part(self) -> Path:
        """Where it comes to."""
        return self.cache.part(self.source, self.name)

    @property
    def note(self) -> Path:
        """Which version the part is of."""
        return self.part.with_suffix(".json")


def _fetch(fetch: _Fetch, before: Entry | None) -> File:
    """The file, complete and verified, as an object of the cache."""
    found = _already_here(fetch, before)
    if found:
        return found
    failures, corruptions = 0, 0
    while True:
        size = _size(fetch.part)
        try:
            return _accept(fetch, _receive(fetch))
        except TryAgain as failure:
            if isinstance(failure, StartOver):
                _forget(fetch)
            failures = 1 if _size(fetch.part) > size else failures + 1
            _wait(fetch.address, failure, failures, fetch.cache.patience)
        except Corrupt as corruption:
            _forget(fetch)
            corruptions += 1
            if corruptions == CORRUPTIONS:
                raise SourceError(
                    f"{fetch.address} came damaged {CORRUPTIONS} times: {corruption}. Its size is right and its "
                    "content is not, so the server or something on the way changes it. Nothing was kept."
                ) from corruption
            _wait(fetch.address, TryAgain(str(corruption)), corruptions, fetch.cache.patience)
        except (SourceError, Unchanged):
            _forget(fetch)
            raise


def _already_here(fetch: _Fetch, before: Entry | None) -> File | None:
    """The file, if an object is known to be just that."""
    remote, cache = fetch.remote, fetch.cache
    if remote.hashes.sha256:
        object = cache.object(remote.hashes.sha256)
        if object.exists() and remote.size in (None, object.stat().st_size):
            return File(remote.hashes.sha256, object.stat().st_size, remote.version or "")
    old = before.files.get(fetch.name) if before else None
    if old and remote.version and old.version == remote.version and cache.object(old.sha256).exists():
        return old
    return None


def _receive(fetch: _Fetch) -> Body | None:
    """Bring the part to its full length, from where it is; returns what the server said of it."""
    remote, part = fetch.remote, fetch.part
    begun, version = _size(part), _noted(fetch)
    if begun and remote.size == begun and version == remote.version:
        return None  # killed between the last byte and the name
    start = begun if version else 0
    with remote.open(start, version) as body:
        if body.start not in (0, start):
            raise StartOver(f"byte {body.start} came where {start} was asked for")
        if body.start and remote.version is None and body.version != version:
            raise StartOver("the file has changed on the way")
        _note(fetch, body.version)
        done = _write(fetch, body)
    expected = body.size if body.size is not None else remote.size
    if expected is not None and done != expected:
        if done > expected:
            raise StartOver(f"{done} bytes came where {expected} were announced")
        raise TryAgain(f"only {done} of {expected} bytes came")
    return body


def _write(fetch: _Fetch, body: Body) -> int:
    done = body.start
    total = body.size if body.size is not None else fetch.remote.size
    with fetch.part.open("r+b" if fetch.part.exists() else "wb") as file:
        file.truncate(body.start)
        file.seek(body.start)
        for chunk in body.chunks:
            file.write(chunk)
            done += len(chunk)
            fetch.cache.watch(Progress(fetch.address, done, total))
    return done


def _accept(fetch: _Fetch, body: Body | None) -> File:
    """Verify the part and give it its name."""
    remote, part = fetch.remote, fetch.part
    told = [remote.hashes, *([body.hashes] if body else [])]
    size = part.stat().st_size
    if remote.size is not None and size != remote.size:
        raise Corrupt(f"{size} bytes came where {remote.size} were announced")
    found = sha256_if(part, told)
    object = fetch.cache.object(found)
    object.parent.mkdir(parents=True, exist_ok=True)
    if object.exists() and object.stat().st_size == size:  # from another source; its links should stay one file
        part.unlink()
    else:
        sync(part)
        part.replace(object)
        sync(object.parent)
    fetch.note.unlink(missing_ok=True)
    version = remote.version or (body.version if body else None) or ""
    return File(found, size, version)


def _noted(fetch: _Fetch) -> str | None:
    try:
        version: str | None = json.loads(fetch.note.read_text())["version"]
    except (OSError, ValueError, KeyError):
        return None
    return version if fetch.remote.version in (None, version) else None


def _note(fetch: _Fetch, version: str | None) -> None:
    fetch.note.parent.mkdir(parents=True, exist_ok=True)
    fetch.note.write_text(json.dumps({"version": fetch.remote.version or version}))


def _forget(fetch: _Fetch) -> None:
    fetch.part.unlink(missing_ok=True)
    fetch.note.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _wait(address: str, failure: TryAgain, failures: int, patience: Patience) -> None:
    """Wait longer each time, never all clients at once; give up when it has been often enough."""
    if failures >= patience.tries:
        raise SourceError(
            f"{address} could not be fetched: {failure}, {failures} times in a row. "
            "Check the address and the network, or download it yourself and give its path. "
            "What came so far is kept, and the same command goes on from there."
        ) from failure
    wait = min(patience.longest_wait, patience.first_wait * 2 ** (failures - 1)) * random.uniform(0.5, 1.5)
    time.sleep(max(wait, min(failure.after, 4 * patience.longest_wait)))

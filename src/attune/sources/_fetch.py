"""The one fetcher: a part is begun or resumed, its size and hash are verified, then it gets its final name.

A source lists what there is to fetch (a Listing of RemoteFiles) and opens each from any byte on. Everything else is
done here: one process at a time for each source, retries, resuming, verifying.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from attune.errors import SourceError
from attune.files import sync
from attune.secrets import shown
from attune.sources._archive import require_inside
from attune.sources._cache import FRESH_SECONDS, Cache, Entry, File, short_hash
from attune.sources._retry import NotModified, Retries, RetryableError, with_retries
from attune.sources._stalls import Transfer, watched
from attune.sources._verify import ChecksumMismatch, Hashes, verified_sha256

MISMATCHES = 3  # so many wrong copies of a file are no accident
THREADS = 8
CHUNK = 1 << 18  # what is lost of a response when its connection breaks
RESUMABLE = (
    "Check the URL and the network, or download it yourself and give its path. The partial download is kept; run "
    "the same command to resume it."
)


@dataclass(frozen=True, slots=True)
class Body:
    """The content of a file from byte `start` on, as it arrives."""

    chunks: Iterator[bytes]
    start: int
    size: int | None  # of the whole file
    version: str | None  # what to resume; without it nothing can be
    hashes: Hashes = Hashes()


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file to fetch. `open(start, version)` gives all of it when there is another version by now."""

    open: Callable[[int, str | None], AbstractContextManager[Body]]
    size: int | None = None
    version: str | None = None
    hashes: Hashes = Hashes()


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a source now. Without a revision, the versions of its files stand for one."""

    files: Mapping[str, RemoteFile]
    revision: str | None = None
    is_folder: bool = False


# (known, locked) -> Listing: asks the server for a source's files, as they were locked or else as they are now; raises
# NotModified if they are still what is known.
ListFiles = Callable[[Entry | None, Entry | None], Listing]


def fetch(source: str, list_files: ListFiles, cache: Cache, is_fixed: bool = False) -> Path:
    """The source's file or folder in the cache, downloaded if it is not there in its present version.

    A source that `is_fixed` never changes, and is not asked about again. Its name is written without credentials.
    """
    source = shown(source)
    entry = _ready(source, cache, is_fixed)
    if entry is None:
        cache.require_network(source)
        with ExitStack() as held:
            with watched(source, cache.watch, "another process is downloading it"):
                held.enter_context(cache.fetching(source))
            entry = _ready(source, cache, is_fixed) or _refresh(source, list_files, cache)
    cache.used[source] = entry
    return cache.place(entry)


def with_file(list_files: ListFiles, name: str, own: Entry) -> ListFiles:
    """List a folder together with a file that is in the cache already."""
    file = next(iter(own.files.values()))

    def list_all(known: Entry | None, locked: Entry | None) -> Listing:
        listing = list_files(known if known and known.files.get(name) == file else None, locked)
        cached = RemoteFile(_never, file.size, file.version, Hashes(sha256=file.sha256))
        return Listing({**listing.files, name: cached}, listing.revision, is_folder=True)

    return list_all


def _never(start: int, version: str | None) -> AbstractContextManager[Body]:
    raise RetryableError("it was removed from the cache")


def _ready(source: str, cache: Cache, is_fixed: bool) -> Entry | None:
    """What needs no network: the locked version, or what was listed a moment ago."""
    locked = cache.locked.get(source)
    if locked:
        was_verified = cache.used.get(source) == locked  # by this process
        return locked if (cache.has if was_verified else cache.is_intact)(locked) else None
    known = cache.known(source)
    if known and (is_fixed or cache.is_offline or time.time() - known[1] < FRESH_SECONDS):
        return known[0]
    return None


def _refresh(source: str, list_files: ListFiles, cache: Cache) -> Entry:
    locked, found = cache.locked.get(source), cache.known(source)
    known = found[0] if found else None
    try:
        with watched(source, cache.watch) as asked:
            list_now = lambda: list_files(None if locked else known, locked)  # noqa: E731
            listing = with_retries(source, list_now, cache.retry, asked.wait_for)
        entry = _fetch_all(source, listing, locked or known, cache)
    except NotModified:
        if known is None:
            raise SourceError(
                f"{source}: the server refers to a version that is not in the cache. Try again."
            ) from None
        entry = known
    except OSError as error:
        raise cache.cannot_write(source, error) from error
    except SourceError as error:
        if known is None or locked:
            raise
        raise SourceError(f"{error} An earlier version is in the cache; ATTUNE_OFFLINE=1 uses it.") from error
    if locked:
        _require_same(entry, locked)
        return locked
    cache.remember(entry)
    return entry


def _require_same(entry: Entry, locked: Entry) -> None:
    changed = [name for name, file in locked.files.items() if entry.files[name].sha256 != file.sha256]
    if changed:
        raise SourceError(
            f"{entry.source} has changed since it was locked ({locked.revision or 'no revision'}): "
            f"{', '.join(changed[:3])}. Get that version elsewhere, or start a new run without the lock."
        )


def _fetch_all(source: str, listing: Listing, before: Entry | None, cache: Cache) -> Entry:
    remotes = dict(listing.files)
    if cache.locked.get(source):
        remotes = {name: remotes[name] for name in _require_all(cache.locked[source], remotes)}
    for name in remotes:
        require_inside(name, source)
    _require_room(source, remotes, cache)
    with ThreadPoolExecutor(THREADS) as pool:
        downloads = {
            name: pool.submit(_download, _Download(source, name, listing.is_folder, remote, cache), before)
            for name, remote in remotes.items()
        }
        try:
            files = {name: future.result() for name, future in downloads.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    versions = [file.version or file.sha256 for file in files.values()]
    revision = listing.revision or (short_hash(*versions) if listing.is_folder else versions[0])
    return Entry(source, revision, files, listing.is_folder)


def _require_all(locked: Entry, remotes: Mapping[str, RemoteFile]) -> list[str]:
    gone = [name for name in locked.files if name not in remotes]
    if gone:
        raise SourceError(
            f"{locked.source} no longer has {', '.join(gone[:3])}, which the lock names. Get that "
            "version elsewhere, or start a new run without the lock."
        )
    return list(locked.files)


def _require_room(source: str, remotes: Mapping[str, RemoteFile], cache: Cache) -> None:
    cache.folder.mkdir(parents=True, exist_ok=True)
    needed = sum(remote.size or 0 for remote in remotes.values())
    free = shutil.disk_usage(cache.folder).free
    if needed > free:
        raise SourceError(
            f"{source} needs {needed / 1e9:.1f} GB; {cache.folder} has {free / 1e9:.1f} GB free. Free some space "
            "(attune cache prune), or set ATTUNE_CACHE to another folder."
        )


@dataclass(frozen=True, slots=True)
class _Download:
    """One file being fetched."""

    source: str
    name: str
    is_in_folder: bool
    remote: RemoteFile
    cache: Cache

    @property
    def address(self) -> str:
        """The file's name in messages."""
        return f"{self.source.rstrip('/')}/{self.name}" if self.is_in_folder else self.source

    @property
    def part(self) -> Path:
        """Where it is written while it is incomplete."""
        return self.cache.part(self.source, self.name)

    @property
    def note(self) -> Path:
        """Which version the part is of."""
        return self.part.with_suffix(".json")


def _download(download: _Download, before: Entry | None) -> File:
    """The file, complete and verified, as an object of the cache."""
    found = _cached(download, before)
    if found:
        return found
    with watched(download.address, download.cache.watch) as transfer:
        return _transfer(download, transfer)


def _transfer(download: _Download, transfer: Transfer) -> File:
    """Try until the file is here, or trying is of no use."""
    begun = _size(download.part)
    retries = Retries(download.address, download.cache.retry, RESUMABLE, report=transfer.wait_for, reached=begun)
    mismatches = 0
    while True:
        try:
            return _accept(download, _receive(download, transfer))
        except RetryableError as failure:
            reached = _size(download.part)
            if failure.restart:
                _discard(download)
            retries.wait(failure, reached)
        except ChecksumMismatch as mismatch:
            _discard(download)
            mismatches += 1
            if mismatches == MISMATCHES:
                raise SourceError(
                    f"{download.address} arrived corrupted {MISMATCHES} times: {mismatch}. Its size is right but "
                    "its content is not: the server or a proxy changes it. Nothing was kept."
                ) from mismatch
            download.cache.retry.wait(mismatches)
        except (SourceError, NotModified):
            _discard(download)
            raise


def _cached(download: _Download, before: Entry | None) -> File | None:
    """The file, if the cache has exactly this content."""
    remote, cache = download.remote, download.cache
    if remote.hashes.sha256:
        object = cache.object(remote.hashes.sha256)
        if object.exists() and remote.size in (None, object.stat().st_size):
            return File(remote.hashes.sha256, object.stat().st_size, remote.version or "")
    old = before.files.get(download.name) if before else None
    if old and remote.version and old.version == remote.version and cache.object(old.sha256).exists():
        return old
    return None


def _receive(download: _Download, transfer: Transfer) -> Body | None:
    """Bring the part to its full length, from where it is; returns the response's headers."""
    remote, part = download.remote, download.part
    begun, (version, size) = _size(part), _noted(download)
    if begun and remote.size == begun and version == remote.version:
        return None  # killed between the last byte and the name
    start = begun if version else 0
    with remote.open(start, version) as body:
        if body.start not in (0, start):
            raise RetryableError(f"the server sent byte {body.start} instead of {start}", restart=True)
        expected = _expected_size(remote, body, size if body.start else None)
        if body.start and remote.version is None and body.version != version:
            raise RetryableError("the file changed during the download", restart=True)
        _note(download, body.version, expected)
        done = _write(download, body, expected, transfer)
    if expected is not None and done != expected:
        raise RetryableError(f"received {done} of {expected} bytes", restart=done > expected)
    return body


def _expected_size(remote: RemoteFile, body: Body, noted: int | None) -> int | None:
    """The size on which the listing, this response and those before it agree; None if no one knows it."""
    sizes = {size for size in (remote.size, body.size, noted) if size is not None}
    if len(sizes) > 1:
        found = " and ".join(str(size) for size in sorted(sizes))
        raise RetryableError(f"the server reports different sizes of one version: {found} bytes", restart=True)
    if body.start and not sizes:
        raise RetryableError("the server sent the rest of the file without its size", restart=True)
    return sizes.pop() if sizes else None


def _write(download: _Download, body: Body, total: int | None, transfer: Transfer) -> int:
    done = body.start
    with download.part.open("r+b" if download.part.exists() else "wb") as file:
        file.truncate(body.start)
        file.seek(body.start)
        for chunk in body.chunks:
            file.write(chunk)
            done += len(chunk)
            transfer.advance(done, total)
    return done


def _accept(download: _Download, body: Body | None) -> File:
    """Verify the part and give it its final name."""
    remote, part = download.remote, download.part
    expected = [remote.hashes, *([body.hashes] if body else [])]
    size = part.stat().st_size
    if remote.size is not None and size != remote.size:
        raise ChecksumMismatch(f"received {size} bytes, expected {remote.size}")
    found = verified_sha256(part, expected)
    object = download.cache.object(found)
    object.parent.mkdir(parents=True, exist_ok=True)
    if object.exists() and object.stat().st_size == size:  # from another source; its links should stay one file
        part.unlink()
    else:
        sync(part)
        part.replace(object)
        sync(object.parent)
    download.note.unlink(missing_ok=True)
    version = remote.version or (body.version if body else None) or ""
    return File(found, size, version)


def _noted(download: _Download) -> tuple[str | None, int | None]:
    """The version that the part is of, if that is still wanted, and the size of the whole."""
    try:
        saved = json.loads(download.note.read_text())
        version: str | None = saved["version"]
        size: int | None = saved.get("size")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, None
    return (version, size) if download.remote.version in (None, version) else (None, None)


def _note(download: _Download, version: str | None, size: int | None) -> None:
    download.note.parent.mkdir(parents=True, exist_ok=True)
    download.note.write_text(json.dumps({"version": download.remote.version or version, "size": size}))


def _discard(download: _Download) -> None:
    download.part.unlink(missing_ok=True)
    download.note.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

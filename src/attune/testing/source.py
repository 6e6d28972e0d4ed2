"""Checks that a source keeps its promises: the right bytes, once, whole, also offline and by range; or an error."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from attune.errors import SourceError
from attune.sources import ByteRanges, Cache, RetryPolicy, Source, with_retries
from attune.testing.problems import require_none

QUICK = RetryPolicy(timeout=5.0, tries=3, first_wait=0.05, longest_wait=0.2)
AT_ONCE = 4


def check_source(source: Source, address: str, content: bytes, missing: str, scratch: Path) -> None:
    """Raise CheckFailed with every promise that `source` breaks.

    `address` must name a file with this `content`, and `missing` nothing; `scratch` is an empty folder.
    """
    require_none(f"The source of {address}", _problems(source, address, content, missing, scratch))


def _problems(source: Source, address: str, content: bytes, missing: str, scratch: Path) -> Iterator[str]:
    cache = Cache(scratch / "cache", retry=QUICK)
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            paths = set(pool.map(lambda _: source.find(address, cache), range(AT_ONCE)))
    except SourceError as error:
        yield f"finding: {address} is not found: {error}"
        return
    yield from _right(paths, content)
    yield from _whole(cache)
    yield from _recorded(cache, address, content)
    yield from _offline(source, address, content, cache)
    yield from _refused(source, missing, Cache(scratch / "other", retry=QUICK))
    if source.ranges:
        yield from _by_range(source.ranges, address, content)
        yield from _refused_by_range(source.ranges, missing)


def _right(paths: set[Path], content: bytes) -> Iterator[str]:
    if len(paths) > 1:
        yield f"finding: {AT_ONCE} calls at once return {len(paths)} paths"
    for path in paths:
        if not path.is_file() or path.read_bytes() != content:
            yield f"finding: {path} does not have the expected content"


def _whole(cache: Cache) -> Iterator[str]:
    left = [path for room in ("parts", "locks") for path in (cache.folder / room).glob("*")]
    if left:
        yield f"fetching: {len(left)} files are left behind, such as {left[0].name}"


def _recorded(cache: Cache, address: str, content: bytes) -> Iterator[str]:
    entries = [entry for entry in cache.used.values() if not entry.is_folder]
    digest = hashlib.sha256(content).hexdigest()
    if not any(file.sha256 == digest for entry in entries for file in entry.files.values()):
        yield f"lock: {address} is not recorded in `cache.used` with its SHA-256, so no run could lock it"


def _offline(source: Source, address: str, content: bytes, cache: Cache) -> Iterator[str]:
    try:
        if source.find(address, replace(cache, is_offline=True)).read_bytes() != content:
            yield "offline: what was fetched has another content"
    except SourceError as error:
        yield f"offline: what was fetched is not found: {error}"
    empty = replace(cache, folder=cache.folder.with_name("empty"), is_offline=True)
    try:
        source.find(address, empty)
        yield "offline: something is found that was never fetched"
    except SourceError:
        pass


def _refused(source: Source, missing: str, cache: Cache) -> Iterator[str]:
    try:
        yield f"refusing: {missing} is found at {source.find(missing, cache)}"
    except SourceError as error:
        if missing not in str(error):
            yield f"refusing: the message does not name {missing}: {error}"
    except Exception as error:
        yield f"refusing: {missing} ends in {type(error).__name__}, where SourceError is expected: {error}"
    left = [path for path in cache.folder.rglob("*") if path.is_file()]
    if left:
        yield f"refusing: {len(left)} files are left behind, such as {left[0]}"


def _by_range(ranges: ByteRanges, address: str, content: bytes) -> Iterator[str]:
    """Pieces read at once, in the middle and across the end; each call is one attempt, so the policy repeats it."""
    try:
        size = with_retries(address, lambda: ranges.size(address), QUICK)
        if size != len(content):
            yield f"ranges: the size is {size}, expected {len(content)}"
        piece = -(-len(content) // AT_ONCE)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            read = lambda start: with_retries(address, lambda: ranges.read(address, start, piece), QUICK)  # noqa: E731
            pieces = b"".join(pool.map(read, range(0, len(content), piece)))
        if pieces != content:
            yield f"ranges: {AT_ONCE} pieces, of which the last may end with the file, do not make up its content"
        if with_retries(address, lambda: ranges.read(address, len(content), 1), QUICK):
            yield "ranges: there are bytes after the end"
        yield from _listed(ranges, address)
    except SourceError as error:
        yield f"ranges: {address} cannot be read: {error}"


def _listed(ranges: ByteRanges, address: str) -> Iterator[str]:
    list_prefix = ranges.list_prefix
    if list_prefix is None:
        return
    found = with_retries(address, lambda: list_prefix(address.rpartition("/")[0] + "/"), QUICK)
    if address not in found or found != sorted(found):
        yield f"ranges: the addresses listed beside {address} lack it, or are not sorted: {', '.join(found[:3])}"


def _refused_by_range(ranges: ByteRanges, missing: str) -> Iterator[str]:
    calls = {"size": lambda: ranges.size(missing), "read": lambda: ranges.read(missing, 0, 1)}
    for name, call in calls.items():
        try:
            yield f"ranges: {name} of {missing} returns {with_retries(missing, call, QUICK)!r}"
        except SourceError:
            pass
        except Exception as error:
            yield f"ranges: {name} of {missing} raises {type(error).__name__}, expected SourceError: {error}"

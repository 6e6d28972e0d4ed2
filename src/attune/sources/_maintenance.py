"""Maintenance of the cache: list it, verify it, prune what has not been used for long."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attune.files import parse_json, sha256
from attune.sources._cache import Cache, Entry, entry_from

DAY = 86_400.0
SETTLED = 3600.0  # an object this young may belong to a source that is still being fetched


@dataclass(frozen=True, slots=True)
class CachedSource:
    """A source in the cache, and when it was last used (seconds since 1970)."""

    entry: Entry
    used: float
    is_whole: bool
    index: Path  # where it is recorded


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed."""

    sources: tuple[str, ...]
    files: int
    size: int


def contents(cache: Cache) -> list[CachedSource]:
    """Every recorded source, the last used first."""
    found = []
    for path in (cache.folder / "index").glob("*.json"):
        try:
            entry = entry_from(parse_json(path.read_bytes()))
            found.append(CachedSource(entry, path.stat().st_mtime, cache.has(entry), path))
        except (OSError, ValueError, KeyError, TypeError):  # written by another version: it will be fetched again
            continue
    return sorted(found, key=lambda kept: -kept.used)


def damaged(cache: Cache, remove: bool) -> Iterator[tuple[Path, list[str]]]:
    """Each file whose content does not match its name, with the sources that have it."""
    kept = contents(cache)
    for path in objects(cache):
        wanted = path.parent.name + path.name
        if sha256(path) == wanted:
            continue
        users = [each.entry for each in kept if any(file.sha256 == wanted for file in each.entry.files.values())]
        if remove:
            for place in list(_places_with(cache, path)):
                shutil.rmtree(place, ignore_errors=True)
            path.unlink()
        yield path, [entry.source for entry in users]


def prune(cache: Cache, days: float) -> Pruned:
    """Remove sources that were not used for so many days, and whatever no source needs."""
    now = time.time()
    old = [kept for kept in contents(cache) if now - kept.used >= days * DAY or _is_misnamed(cache, kept)]
    for kept in old:
        kept.index.unlink(missing_ok=True)
    live = [kept.entry for kept in contents(cache)]
    needed = {file.sha256 for entry in live for file in entry.files.values()}
    places = {cache.place_of(entry).parent for entry in live}
    for folder in _places(cache):
        # What a run is locked to may be in no index any more, and is in use all the same.
        if folder not in places and now - folder.stat().st_mtime >= _min_age(days, days * DAY):
            shutil.rmtree(folder, ignore_errors=True)
    removed = [_remove(path) for path in list(_unneeded(cache, needed, now, days))]
    return Pruned(tuple(kept.entry.source for kept in old), len(removed), sum(removed))


def _is_misnamed(cache: Cache, kept: CachedSource) -> bool:
    """Whether an earlier version recorded it with a credential in its name; it is found by another name now."""
    return kept.index != cache.index(kept.entry.source)


def objects(cache: Cache) -> list[Path]:
    """Every file by content."""
    return sorted(path for path in (cache.folder / "objects").glob("*/*") if path.is_file())


def _places(cache: Cache) -> list[Path]:
    """Every folder in which a file or a tree of files has its own name."""
    return [folder for room in ("files", "trees") for folder in (cache.folder / room).glob("*")]


def _places_with(cache: Cache, path: Path) -> Iterator[Path]:
    """Those that have this very file."""
    for folder in _places(cache):
        if any(each.is_file() and each.samefile(path) for each in folder.rglob("*")):
            yield folder


def _min_age(days: float, seconds: float) -> float:
    """How old something must be to be removed; zero days remove everything."""
    return max(seconds, SETTLED) if days else 0.0


def _unneeded(cache: Cache, needed: set[str], now: float, days: float) -> Iterator[Path]:
    for path in objects(cache):
        about = path.stat()
        is_placed = about.st_nlink > 1
        is_settled = now - about.st_mtime >= _min_age(days, 0.0)
        if path.parent.name + path.name not in needed and is_settled and not is_placed:
            yield path
    for path in (cache.folder / "parts").glob("*"):
        if now - path.stat().st_mtime >= min(days, 1) * DAY:
            yield path


def _remove(path: Path) -> int:
    size = path.stat().st_size
    path.unlink(missing_ok=True)
    return size

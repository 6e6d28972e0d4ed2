"""What a source is, and the one that an address names: the scheme is the plug-in's name or its dotted module."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from attune import catalog
from attune.errors import ConfigError, SourceError
from attune.secrets import shown
from attune.sources._cache import Cache, Watch
from attune.sources._fetch import ListFiles

_SCHEME = re.compile(r"([a-z][\w.+-]*)://|(file):", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][\w.+-]*://", re.IGNORECASE)
_LOCAL = ("file", "attune")


class Find(Protocol):
    """The file or folder that an address names, fetched into the cache if it is remote."""

    def __call__(self, address: str, cache: Cache) -> Path: ...


class Push(Protocol):
    """Uploads all files of a folder to an address, so that they appear there together; returns where to see them.

    `watch` gets how far it is; a function without this parameter works too, and shows no progress.
    """

    def __call__(self, folder: Path, address: str, message: str, watch: Watch) -> str: ...


# Picks names out of those of all files of a folder.
Choose = Callable[[Sequence[str]], Sequence[str]]


class Choosing(Protocol):
    """How to list those files of the folder at an address that `choose` picks by their names."""

    def __call__(self, address: str, choose: Choose, cache: Cache) -> ListFiles: ...


class Beside(Protocol):
    """How to list the files of these names in the folder that the file at an address lies in."""

    def __call__(self, address: str, names: Sequence[str], cache: Cache) -> ListFiles: ...


@dataclass(frozen=True, slots=True)
class ByteRanges:
    """Reads parts of a file in place. Each call is one attempt: RetryableError for what may pass, else SourceError.

    `read(address, start, length)` returns fewer bytes only where the file ends. `list_prefix(address)` returns the
    addresses that begin with it, sorted; without it, shards are named one by one or as `{000..127}`.
    """

    read: Callable[[str, int, int], bytes]
    size: Callable[[str], int]
    list_prefix: Callable[[str], list[str]] | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A place that files come from. `sources/SCHEME.py` exports one as SOURCE.

    With `push`, models can be uploaded to it; with `beside`, its manifests may name audio files that lie next to them;
    with `ranges`, it can hold shards; with `choosing`, a part of a large dataset can be fetched.
    """

    find: Find
    push: Push | None = None
    beside: Beside | None = None
    ranges: ByteRanges | None = None
    choosing: Choosing | None = None


SOURCES: catalog.Kind[Source] = catalog.Kind("sources", "SOURCE")


def is_address(audio: str) -> bool:
    """Whether a manifest's `audio` is an address and not a path."""
    return _ADDRESS.match(audio) is not None


def is_remote(address: str) -> bool:
    """Whether an address is on another machine."""
    return _scheme(address) not in _LOCAL


def source_of(address: str) -> Source:
    """The source that an address, or a plain path, is read with."""
    scheme = _scheme(address)
    try:
        return _find(scheme, tuple(sys.path))
    except ConfigError as error:
        if "." in scheme:
            raise SourceError(f"{shown(address)}: {error}") from error
        known = catalog.suggestion(scheme, catalog.names(SOURCES))
        raise SourceError(f"Unknown scheme {scheme!r} in {shown(address)}{known}") from error


def _scheme(address: str) -> str:
    match = _SCHEME.match(address)
    return (match[1] or match[2]).lower() if match else "file"


@cache
def _find(scheme: str, path: tuple[str, ...]) -> Source:
    # Range reads ask for every piece, and the catalog lists a folder each time.
    found: Source = catalog.find(SOURCES, scheme)
    return found

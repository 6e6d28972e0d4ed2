"""Where things come from: a plain path, or an address whose scheme is the name of a source.

A source is a file of this folder that exports SOURCE. What is far away is fetched into the cache, once.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from attune import catalog
from attune.errors import SourceError
from attune.secrets import shown, without_secrets
from attune.sources._archive import open_archive, read_member, require_inside, unpack
from attune.sources._cache import Cache, Entry, File, Patience, Progress, entry_from, unwatched
from attune.sources._content import audio_column, content_of, contents_of
from attune.sources._fetch import Ask, Body, Listing, Remote, TryAgain, Unchanged, bring, with_file
from attune.sources._ranges import is_address, list_prefix, network_is_forbidden, read_range, size_of
from attune.sources._upkeep import Kept, Pruned, contents, damaged, prune
from attune.sources._verify import Hashes

__all__ = [
    "Body",
    "Cache",
    "Entry",
    "File",
    "Hashes",
    "Kept",
    "Listing",
    "Patience",
    "Progress",
    "Pruned",
    "Remote",
    "Source",
    "TryAgain",
    "Unchanged",
    "audio_column",
    "bring",
    "content_of",
    "contents",
    "contents_of",
    "damaged",
    "entry_from",
    "is_address",
    "is_remote",
    "list_prefix",
    "locate",
    "locate_beside",
    "network_is_forbidden",
    "open_archive",
    "prune",
    "push",
    "read_member",
    "read_range",
    "require_inside",
    "shown",
    "size_of",
    "unpack",
    "unwatched",
    "without_secrets",
]

_SCHEME = re.compile(r"([a-z][a-z0-9+-]*)://|(file):", re.IGNORECASE)
_HERE = ("file", "attune")


class Push(Protocol):
    """Puts all files of a folder to an address, so that they appear there together; returns where to look at them."""

    def __call__(self, folder: Path, address: str, message: str) -> str: ...


class Find(Protocol):
    """The file or folder that an address names, fetched into the cache if it is far away."""

    def __call__(self, address: str, cache: Cache) -> Path: ...


class Beside(Protocol):
    """How to ask for the files of these names in the folder that the file at an address lies in."""

    def __call__(self, address: str, names: Sequence[str], cache: Cache) -> Ask: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A place that things come from, and maybe can be put to. `sources/SCHEME.py` exports one as SOURCE.

    A source whose manifests may name audio files that lie beside them has `beside`.
    """

    find: Find
    push: Push | None = None
    beside: Beside | None = None


def locate(source: str, cache: Cache) -> Path:
    """The file or folder that `source` names; what is far away is fetched into `cache` once."""
    return _source(source).find(source, cache)


def push(folder: Path, source: str, message: str) -> str:
    """Put a folder where `source` says, whole or not at all."""
    chosen = _source(source)
    if chosen.push is None:
        raise SourceError(f"Nothing can be put to {shown(source)}. Use hf://ORG/NAME or s3://BUCKET/PREFIX/.")
    return chosen.push(folder, source, message)


def locate_beside(source: str, names: Sequence[str], cache: Cache) -> Path:
    """A far-away file again, now in a folder with the files of these names that lie beside it.

    They are fetched together; names that lead out of the folder are refused.
    """
    beside = _source(source).beside
    if beside is None:
        raise SourceError(f"{shown(source)} cannot name files that lie beside it. Fetch it, and give its path.")
    path = locate(source, cache)
    own = cache.used[shown(source)]
    for name in names:
        require_inside(name, shown(source))
    ask = with_file(beside(source, names, cache), path.name, own)
    return bring(f"{shown(source)}#beside", ask, cache)


def is_remote(source: str) -> bool:
    """Whether a source is on another machine."""
    return _scheme(source) not in _HERE


def _scheme(source: str) -> str:
    match = _SCHEME.match(source)
    return (match[1] or match[2]).lower() if match else "file"


def _source(source: str) -> Source:
    scheme, known = _scheme(source), catalog.names(catalog.SOURCES)
    if scheme not in known:
        raise SourceError(
            f"There is no source {scheme!r} to get {shown(source)} from{catalog.suggestion(scheme, known)}"
        )
    found: Source = catalog.find(catalog.SOURCES, scheme)
    return found

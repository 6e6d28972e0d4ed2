"""Where files come from: a plain path, or an address whose scheme is the name of a source.

A source is a file of this folder that exports SOURCE. What is remote is fetched into the cache, once, or read in place
by byte ranges.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path

from attune.errors import SourceError
from attune.secrets import shown, without_secrets
from attune.sources._archive import TarHeader, open_archive, require_inside, require_size, unpack
from attune.sources._cache import Cache, Entry, File, TransferProgress, Watch, entry_from, unwatched
from attune.sources._content import audio_column, content_of, contents_of
from attune.sources._fetch import Body, ListFiles, Listing, RemoteFile, fetch, with_file
from attune.sources._lock import read_lock, write_lock
from attune.sources._maintenance import CachedSource, Pruned, contents, damaged, prune
from attune.sources._ranges import list_prefix, network_is_forbidden, read_range, size_of, waiting_for_sources
from attune.sources._retry import NotModified, RetryableError, RetryPolicy, with_retries
from attune.sources._s3_objects import STORE_ADVICE, ObjectStore, Refused, StoredObject
from attune.sources._s3_push import replace_pushed
from attune.sources._source import SOURCES, ByteRanges, Choose, Source, is_address, is_remote, source_of
from attune.sources._uploads import UploadedBytes
from attune.sources._verify import Hashes

__all__ = [
    "SOURCES",
    "STORE_ADVICE",
    "Body",
    "ByteRanges",
    "Cache",
    "CachedSource",
    "Choose",
    "Entry",
    "File",
    "Hashes",
    "ListFiles",
    "Listing",
    "NotModified",
    "ObjectStore",
    "Pruned",
    "Refused",
    "RemoteFile",
    "RetryPolicy",
    "RetryableError",
    "Source",
    "StoredObject",
    "TarHeader",
    "TransferProgress",
    "UploadedBytes",
    "Watch",
    "audio_column",
    "content_of",
    "contents",
    "contents_of",
    "damaged",
    "entry_from",
    "fetch",
    "is_address",
    "is_remote",
    "list_prefix",
    "locate",
    "locate_beside",
    "locate_some",
    "network_is_forbidden",
    "open_archive",
    "prune",
    "push",
    "read_lock",
    "read_range",
    "replace_pushed",
    "require_inside",
    "require_size",
    "shown",
    "size_of",
    "unpack",
    "unwatched",
    "waiting_for_sources",
    "with_retries",
    "without_secrets",
    "write_lock",
]


def locate(source: str, cache: Cache) -> Path:
    """The file or folder that `source` names; what is remote is fetched into `cache` once."""
    return source_of(source).find(source, cache)


def push(folder: Path, source: str, message: str, watch: Watch = unwatched) -> str:
    """Upload a folder to `source`, whole or not at all; `watch` gets how far it is."""
    upload = source_of(source).push
    if upload is None:
        raise SourceError(f"Cannot push to {shown(source)}. Use hf://ORG/NAME, s3://BUCKET/PREFIX/ or a folder.")
    try:
        inspect.signature(upload).bind(folder, source, message, watch)
    except TypeError:  # a plug-in for 0.1, which had no `watch`
        return upload(folder, source, message)  # type: ignore[call-arg]
    return upload(folder, source, message, watch)


def locate_some(source: str, choose: Choose, cache: Cache, name: str | None = None) -> Path:
    """The folder at `source` with the files that `choose` picks by their names; the choice is kept under `name`.

    Of a source that cannot choose, all files are fetched.
    """
    choosing = source_of(source).choosing
    return fetch(name or source, choosing(source, choose, cache), cache) if choosing else locate(source, cache)


def locate_beside(source: str, names: Sequence[str], cache: Cache) -> Path:
    """A remote file again, now in a folder with the files of these names that lie next to it.

    They are fetched together; names that lead out of the folder are refused.
    """
    beside = source_of(source).beside
    if beside is None:
        raise SourceError(
            f"Files beside {shown(source)} cannot be found by a relative path. Download it, and give its path."
        )
    path = locate(source, cache)
    own = cache.used[shown(source)]
    for name in names:
        require_inside(name, shown(source))
    list_files = with_file(beside(source, names, cache), path.name, own)
    return fetch(f"{shown(source)}#beside", list_files, cache)

"""A source from elsewhere: `toy.depot://FOLDER/FILE` is a file of a folder; every third range read breaks off."""

import hashlib
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from attune.errors import SourceError
from attune.sources import Body, ByteRanges, Hashes, Listing, RemoteFile, RetryableError, Source, fetch

SCHEME = "toy.depot://"
_reads = count(1)


def find(address, cache):
    def list_files(known, locked):
        content = _content(address)
        remote = RemoteFile(_opened(content), len(content), hashes=Hashes(sha256=hashlib.sha256(content).hexdigest()))
        return Listing({_path(address).name: remote})

    return fetch(address, list_files, cache)


def read_range(address, start, length):
    content = _content(address)[start : start + length]
    if next(_reads) % 3 == 0 and len(content) > 1:
        raise RetryableError("the depot hung up", received=content[: len(content) // 2])
    return content


def size_of(address):
    return len(_content(address))


def list_prefix(address):
    folder, name = (_path(address), "") if address.endswith("/") else (_path(address).parent, _path(address).name)
    return sorted(f"{SCHEME}{path}" for path in folder.glob(f"{name}*"))


def _opened(content):
    @contextmanager
    def open_from(start, version):
        yield Body(iter([content[start:]]), start, len(content), "1")

    return open_from


def _path(address):
    return Path(address.removeprefix(SCHEME))


def _content(address):
    try:
        return _path(address).read_bytes()
    except OSError as error:
        raise SourceError(f"The depot has no {address}.") from error


SOURCE = Source(find, ranges=ByteRanges(read_range, size_of, list_prefix))

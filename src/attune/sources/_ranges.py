"""Bytes from the middle of a file or of an address, as the loader's workers read them out of shards.

What has come stays: after a dropped connection only the rest is asked for again. Connections are kept and used again.
"""

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from attune.errors import SourceError
from attune.secrets import shown
from attune.sources._addresses import hub_endpoint, read_hub, read_s3, read_web
from attune.sources._cache import Patience
from attune.sources._http import credentials
from attune.sources._s3_talk import open_client

TIMEOUT_SECONDS = 30.0
WAITS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each new try; a try that brought something starts them anew
REDIRECTS = 5
PIECE = 1 << 18  # of an answer that is read at once

_ADDRESS = re.compile(r"[a-z][a-z0-9+-]*://", re.IGNORECASE)
_PASSING = (408, 425, 429)
_MOVED = (301, 302, 303, 307, 308)
_idle: dict[tuple[int, str, str], list[HTTPConnection]] = {}


class Dropped(Exception):
    """The network failed in a way that may pass, after `got` had come."""

    def __init__(self, reason: str, got: bytes = b"") -> None:
        super().__init__(reason)
        self.got = got


def is_address(audio: str) -> bool:
    """Whether a manifest's `audio` is an address and not a path."""
    return _ADDRESS.match(audio) is not None


def read_range(address: str, start: int, length: int) -> bytes:
    """`length` bytes from byte `start` on; fewer are a SourceError."""
    read = _reader_of(address)
    return b"".join(_with_retries(address, read, start, length))


def size_of(address: str) -> int:
    """How many bytes there are in all."""
    scheme = _scheme(address)
    if scheme == "file":
        return _size_of_file(_path_of(address))
    if scheme == "s3":
        return _retried(address, lambda: int(_ask_s3(address, "head_object")["ContentLength"]))
    return _retried(address, partial(_ask_size, address, *_web_address(address)))


def list_prefix(address: str) -> list[str]:
    """The addresses of the objects that begin with an `s3://bucket/prefix`, sorted."""
    return _retried(address, partial(_list_s3, address))


Read = Callable[[int, int], bytes]
T = TypeVar("T")


def _retried(address: str, ask: Callable[[], T]) -> T:
    waits = iter((*WAITS, None))
    while True:
        try:
            return ask()
        except Dropped as drop:
            _wait(address, next(waits), drop)


def _with_retries(address: str, read: Read, start: int, length: int) -> Iterator[bytes]:
    waits = iter((*WAITS, None))
    end = start + length
    while start < end:
        try:
            got = read(start, end - start)
        except Dropped as drop:
            got = drop.got
            if got:
                waits = iter((*WAITS, None))
            _wait(address, next(waits), drop)
        start += len(got)
        yield got


def _wait(address: str, seconds: float | None, drop: Dropped) -> None:
    if seconds is None:
        raise SourceError(
            f"{shown(address)} could not be read: {drop}, {len(WAITS) + 1} times. Check the address and the network."
        ) from drop
    time.sleep(seconds * random.uniform(0.7, 1.3))  # so that all ranks do not knock at once


def _reader_of(address: str) -> Read:
    scheme = _scheme(address)
    if scheme == "file":
        return partial(_read_file, _path_of(address))
    if scheme == "s3":
        return partial(_read_s3, address)
    return partial(_read_web, address, *_web_address(address))


def network_is_forbidden() -> bool:
    """Whether ATTUNE_OFFLINE forbids the network; readers are other processes, which the environment reaches."""
    return os.environ.get("ATTUNE_OFFLINE", "0").lower() not in ("", "0", "false", "no")


def _scheme(address: str) -> str:
    match = _ADDRESS.match(address)
    scheme = match[0][:-3].lower() if match else "file"
    if scheme not in ("file", "s3", "http", "https", "hf"):
        raise SourceError(
            f"{shown(address)} cannot be read by byte range. Expected a path or s3://, https://, http:// or hf://."
        )
    if scheme != "file" and network_is_forbidden():
        raise SourceError(f"{shown(address)} is read where it is, and --offline (ATTUNE_OFFLINE) forbids the network.")
    return scheme


def _path_of(address: str) -> Path:
    return Path(unquote(urlsplit(address).path)) if is_address(address) else Path(address)


def _read_file(path: Path, start: int, length: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            content = file.read(length)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) < length:
        raise _too_short(str(path), start + length)
    return content


def _size_of_file(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from error


def _too_short(address: str, end: int) -> SourceError:
    return SourceError(
        f"{shown(address)} ends before byte {end}: it is cut off, or was changed since its manifest was made. "
        "Fetch it again, or run `attune prepare` anew."
    )


# ---- HTTP


def _web_address(address: str) -> tuple[str, Mapping[str, str]]:
    """The URL behind an address, and the headers it is asked with."""
    headers = {"User-Agent": "attune", "Accept-Encoding": "identity"}
    if _scheme(address) != "hf":
        web = read_web(address)
        return web.url, {**headers, **credentials(web.host)}
    from huggingface_hub import get_token, hf_hub_url

    token = get_token()
    return hf_hub_url(**_hub_file(address), endpoint=hub_endpoint()), {
        **headers,
        **({"Authorization": f"Bearer {token}"} if token else {}),
    }


def _hub_file(address: str) -> dict[str, str]:
    """`hf://[datasets/]org/name[@revision]/path` as the hub's client takes it."""
    hub = read_hub(address)
    if not hub.path:
        raise SourceError(f"{address} names no file. Expected hf://datasets/ORG/NAME[@REVISION]/FILE.")
    return {"repo_id": hub.repo, "filename": hub.path, "repo_type": hub.kind, "revision": hub.revision or "main"}


def _ask_size(address: str, url: str, headers: Mapping[str, str]) -> int:
    """By asking for one byte: an address that is signed for reading may not be asked for its head."""
    with _answered(url, {**headers, "Range": "bytes=0-0"}) as response:
        if response.status == 416:  # there is no first byte
            return 0
        _require_ok(address, response, (200, 206))
        size = response.length if response.status == 200 else _total(response)
        if response.status == 206:
            _read_body(response, 1)
    if size is None:
        raise SourceError(f"{shown(address)}: the server does not say how long it is. Fetch it, and give its path.")
    return size


def _read_web(address: str, url: str, headers: Mapping[str, str], start: int, length: int) -> bytes:
    wanted = {**headers, "Range": f"bytes={start}-{start + length - 1}"}
    with _answered(url, wanted) as response:
        if response.status == 416:
            raise _too_short(address, start + length)
        _require_ok(address, response, (206,))
        content = _read_body(response, length)
    if len(content) < length and _total(response) is not None and start + len(content) >= (_total(response) or 0):
        raise _too_short(address, start + length)
    if len(content) < length:
        raise Dropped(f"only {len(content)} of {length} bytes came", content)
    return content


def _read_body(response: HTTPResponse, length: int) -> bytes:
    got = bytearray()
    try:
        while len(got) < length and (piece := response.read(min(PIECE, length - len(got)))):
            got += piece
    except (OSError, HTTPException) as error:
        raise Dropped(str(error) or type(error).__name__, bytes(got)) from error
    return bytes(got)


def _total(response: HTTPResponse) -> int | None:
    match = re.search(r"/(\d+)$", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _require_ok(address: str, response: HTTPResponse, wanted: tuple[int, ...]) -> None:
    if response.status in wanted:
        return
    if response.status >= 500 or response.status in _PASSING:
        raise Dropped(f"the server answered {response.status} {response.reason}")
    if response.status == 200:
        raise SourceError(
            f"{shown(address)}: the server does not serve byte ranges. Fetch the file, and give its path."
        )
    raise SourceError(f"{shown(address)} could not be read: the server answered {response.status} {response.reason}.")


@contextmanager
def _answered(url: str, headers: Mapping[str, str]) -> Iterator[HTTPResponse]:
    """The answer after redirects; its connection is used again when all of it was read."""
    for _ in range(REDIRECTS):
        where = urlsplit(url)
        connection, response = _ask(where, headers)
        if response.status in _MOVED:
            connection.close()
            url = urljoin(url, response.headers.get("Location", ""))
            headers = _headers_after(where, urlsplit(url), headers)
            continue
        try:
            yield response
        finally:
            if response.isclosed():
                _idle_of(where).append(connection)
            else:
                connection.close()
        return
    raise SourceError(f"{shown(url)} was redirected more than {REDIRECTS} times.")


def _headers_after(before: SplitResult, after: SplitResult, headers: Mapping[str, str]) -> Mapping[str, str]:
    """What a redirect is followed with: a token is for the host it was meant for, and never for all to see."""
    if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == ("https", "http"):
        raise SourceError(f"{shown(before.geturl())} leads on to {shown(after.geturl())}, which is not safe to follow.")
    if (before.scheme, before.netloc) == (after.scheme, after.netloc):
        return headers
    return {name: value for name, value in headers.items() if name != "Authorization"}


def _ask(where: SplitResult, headers: Mapping[str, str]) -> tuple[HTTPConnection, HTTPResponse]:
    target = f"{where.path or '/'}?{where.query}" if where.query else where.path or "/"
    idle = _idle_of(where)
    while True:
        is_used = bool(idle)
        connection = idle.pop() if is_used else _connect(where)
        try:
            connection.request("GET", target, headers=dict(headers))
            return connection, connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            if not is_used:  # a used one may have been closed by the server long ago
                raise Dropped(str(error) or type(error).__name__) from error


def _idle_of(where: SplitResult) -> list[HTTPConnection]:
    # By process, because a forked one must not read from its parent's sockets.
    return _idle.setdefault((os.getpid(), where.scheme, where.netloc), [])


def _connect(where: SplitResult) -> HTTPConnection:
    kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
    return kind(where.netloc, timeout=TIMEOUT_SECONDS)


# ---- S3


def _read_s3(address: str, start: int, length: int) -> bytes:
    answer = _ask_s3(address, "get_object", Range=f"bytes={start}-{start + length - 1}")
    got = bytearray()
    try:
        for piece in answer["Body"].iter_chunks(PIECE):
            got += piece
    except Exception as error:  # urllib3's and botocore's have no common base
        raise Dropped(type(error).__name__, bytes(got)) from error
    if len(got) < length:
        raise _too_short(address, start + length)
    return bytes(got)


def _list_s3(address: str) -> list[str]:
    bucket, key = read_s3(address)
    pages = _s3().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    with _telling(address):
        return sorted(f"s3://{bucket}/{each['Key']}" for page in pages for each in page.get("Contents", ()))


def _ask_s3(address: str, method: str, **options: str) -> Any:
    bucket, key = read_s3(address)
    with _telling(address):
        return getattr(_s3(), method)(Bucket=bucket, Key=key, **options)


@contextmanager
def _telling(address: str) -> Iterator[None]:
    """What S3 says, in words; what may pass is tried again."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = error.response.get("Error", {}).get("Code", "")
        if status >= 500 or code == "SlowDown":
            raise Dropped(f"S3 answered {status} {code}") from error
        raise SourceError(f"{shown(address)} could not be read: S3 answered {status} {code}.") from error
    except BotoCoreError as error:
        if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"):
            raise SourceError(
                f"{shown(address)} could not be read: {error}. Set AWS_PROFILE or AWS_ACCESS_KEY_ID."
            ) from error
        raise Dropped(type(error).__name__) from error


def _s3() -> Any:
    return _s3_of(os.getpid())


@cache
def _s3_of(process: int) -> Any:
    """One client for each process; threads may share it."""
    return open_client(Patience(timeout=TIMEOUT_SECONDS), retries=3, connections=64)

"""The one HTTP transport: kept connections, safe redirects, proxies, byte ranges, and each failure classified once."""

import atexit
import base64
import netrc
import os
import re
import select
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import chain
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from attune.errors import SourceError
from attune.secrets import shown
from attune.sources._fetch import Body
from attune.sources._responses import (
    at_most_bytes,
    extent_of,
    printable,
    read_chunks,
    reason_of,
    seconds_until,
    title_of,
    version_of,
)
from attune.sources._retry import NotModified, RetryableError, collect, is_transient
from attune.sources._source import ByteRanges

REDIRECTS = 10
SMALL = 1 << 16  # bytes that are quicker to read than a connection is to open
DRAIN_SECONDS = 1.0
OK = (200, 206)
OK_OR_PAST_THE_END = (*OK, 416)
_MOVED = (301, 302, 303, 307, 308)
REASONS = {
    401: "login required",
    403: "access denied, or the permission has expired",
    **dict.fromkeys(_MOVED, "a redirect without a target"),
}
_CONDITIONS = {"If-None-Match", "If-Modified-Since"}
_HEADERS = {"User-Agent": "attune", "Accept-Encoding": "identity"}
_CONNECTIONS: dict[str, type[HTTPConnection]] = {"http": HTTPConnection, "https": HTTPSConnection}


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file at a web address. `credentials` are headers for that host alone."""

    url: str
    timeout: float
    credentials: Mapping[str, str]
    known: str | None = None  # the version that need not be sent again
    is_fixed: bool = False  # the address never gets other content
    advice: str = "Check the URL."
    is_verified: bool = False  # by a hash or size from elsewhere

    @contextmanager
    def open(self, start: int, version: str | None) -> Iterator[Body]:
        """The file from byte `start` of that version on, or all of another one."""
        with self._get(self._conditions(start, version), OK) as response:
            if response.status == 206 and not start:
                raise RetryableError("the server sent a part of the file (206) instead of all of it")
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise SourceError(f"{shown(self.url)} is sent as {encoding}; expected no Content-Encoding.")
            extent = extent_of(response)
            if not (extent.is_delimited or self.is_verified):
                raise SourceError(
                    f"{shown(self.url)}: the server sends no size, so a truncated download would go unnoticed. "
                    "Add #sha256=… to the URL, or download it yourself and give its path."
                )
            begin, chunks = extent.begin, at_most_bytes(read_chunks(response), extent.count)
            first = b"" if begin else next(chunks, b"")
            self._refuse_page(first)
            yield Body(chain([first], chunks), begin, extent.size, version_of(response.headers))

    def read(self, start: int, length: int) -> bytes:
        """The bytes of a range, fewer only where the file ends."""
        with self._get({"Range": f"bytes={start}-{start + length - 1}"}, OK_OR_PAST_THE_END) as response:
            if response.status == 416:
                return b""
            if response.status == 200:
                raise SourceError(
                    f"{shown(self.url)}: the server does not support byte ranges. Download the file, and give its path."
                )
            extent = extent_of(response)
            size = extent.size
            if extent.begin != start:
                raise RetryableError(f"the server sent byte {extent.begin} instead of {start}")
            content = collect(at_most_bytes(read_chunks(response), extent.count))[:length]
        if len(content) < length and (size is None or start + len(content) < size):
            raise RetryableError(f"received {len(content)} of {length} bytes", received=content)
        return content

    def size(self) -> int:
        """The size, from a request for one byte: an address that is signed for GET may refuse HEAD."""
        with self._get({"Range": "bytes=0-0"}, OK_OR_PAST_THE_END) as response:
            size = 0 if response.status == 416 else extent_of(response).size
        if size is None:
            raise SourceError(
                f"{shown(self.url)}: the server does not send the size. Download the file, and give its path."
            )
        return size

    def _conditions(self, start: int, version: str | None) -> dict[str, str]:
        if start:
            if_range = {"If-Range": version} if version and not self.is_fixed else {}
            return {"Range": f"bytes={start}-", **if_range}
        if self.known:
            return {"If-None-Match" if self.known.startswith('"') else "If-Modified-Since": self.known}
        return {}

    @contextmanager
    def _get(self, headers: Mapping[str, str], accepted: tuple[int, ...]) -> Iterator[HTTPResponse]:
        with following_redirects(self.url, headers, self.credentials, self.timeout) as response:
            if response.status not in accepted:
                raise self._failure(response, is_conditional=not _CONDITIONS.isdisjoint(headers))
            yield response

    def _failure(self, response: HTTPResponse, is_conditional: bool) -> Exception:
        status = response.status
        what = f"the server answered {status} {printable(response.reason)}"
        if status == 304:
            return NotModified() if is_conditional else RetryableError(f"{what} to a request without conditions")
        if status == 416:  # the part is longer than the file is now
            return RetryableError(what, restart=True)
        if is_transient(status):
            return RetryableError(what, after_seconds=seconds_until(response.headers.get("Retry-After")))
        reason = f" ({REASONS[status]})" if status in REASONS else ""
        return SourceError(f"Cannot read {shown(self.url)}: {what}{reason}. {self.advice}")

    def _refuse_page(self, first: bytes) -> None:
        """A login or error page is not the file, whatever its name."""
        name = urlsplit(self.url).path.lower()
        begin = first[:512].lstrip().lower()
        if name.endswith((".html", ".htm")) or not begin.startswith((b"<!doctype html", b"<html")):
            return
        raise SourceError(
            f"{shown(self.url)} is a web page{title_of(first)}, not a file. Use the download URL; if it needs a "
            "login, download the file yourself and give its path."
        )


def web_ranges(file_at: Callable[[str], WebFile]) -> ByteRanges:
    """The byte ranges of a source whose addresses are web files."""
    return ByteRanges(
        lambda address, start, length: file_at(address).read(start, length), lambda address: file_at(address).size()
    )


def netrc_credentials(host: str) -> Mapping[str, str]:
    """The authorization that ~/.netrc (or $NETRC) has for a host."""
    try:
        found = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return {}
    return {"Authorization": _basic(found[0], found[2] or "")} if found else {}


# ---- redirects


@contextmanager
def following_redirects(
    url: str, headers: Mapping[str, str], credentials: Mapping[str, str], timeout: float
) -> Iterator[HTTPResponse]:
    """The response at the end of all redirects. Credentials never leave the host that they are for."""
    for _ in range(REDIRECTS + 1):
        where = urlsplit(url)
        route = _route(where)
        connection, response = _request(route, where, {**_HEADERS, **headers, **credentials}, timeout)
        try:
            location = response.headers.get("Location") if response.status in _MOVED else None
            if location is None:
                yield response
                return
        finally:
            _release(route, connection, response)
        after = _target(url, location)
        url, credentials = after.geturl(), credentials_after(where, after, credentials)
    raise SourceError(f"{shown(url)} was redirected more than {REDIRECTS} times. Check the URL.")


def _target(url: str, location: str) -> SplitResult:
    try:
        target = urlsplit(urljoin(url, quote(location, encoding="iso-8859-1", safe=string.punctuation)))
        is_sound = bool(target.hostname) and target.port != 0
    except ValueError:
        is_sound = False
    if not is_sound and not re.match(r"(?!https?:)[a-z][a-z0-9.+-]*:", location, re.IGNORECASE):
        raise SourceError(f"{shown(url)} redirects to {printable(location)!r}, which is not a web address.")
    return target


def credentials_after(before: SplitResult, after: SplitResult, credentials: Mapping[str, str]) -> Mapping[str, str]:
    is_downgrade = (before.scheme, after.scheme) == ("https", "http")
    if after.scheme not in ("http", "https") or is_downgrade or "@" in after.netloc:
        raise SourceError(
            f"{shown(before.geturl())} redirects to {shown(after.geturl())}, which is not safe to follow."
        )
    return credentials if (before.scheme, before.netloc) == (after.scheme, after.netloc) else {}


# ---- connections


@dataclass(frozen=True, slots=True)
class _Route:
    """What a connection can be used for again: a host, directly or through a proxy."""

    scheme: str
    host: str
    proxy: str | None = field(repr=False)  # may contain a password


# By process, because a forked one must not read from its parent's sockets.
_idle: dict[tuple[int, _Route], list[HTTPConnection]] = {}


def _route(where: SplitResult) -> _Route:
    """To the host, or to the proxy that the environment names for it (http_proxy, https_proxy, no_proxy)."""
    host = unquote(where.netloc)
    proxy = getproxies().get(where.scheme)
    if not proxy or proxy_bypass(host):
        return _Route(where.scheme, host, None)
    if "://" not in proxy:
        proxy = f"{where.scheme}://{proxy}"
    if urlsplit(proxy).scheme not in _CONNECTIONS:
        raise SourceError(f"{where.scheme}_proxy is a {urlsplit(proxy).scheme} proxy. Expected http://HOST:PORT.")
    return _Route(where.scheme, host, proxy)


def _request(
    route: _Route, where: SplitResult, headers: dict[str, str], timeout: float
) -> tuple[HTTPConnection, HTTPResponse]:
    target = f"{where.path or '/'}?{where.query}" if where.query else where.path or "/"
    if route.proxy and route.scheme == "http":
        target = f"http://{route.host}{target}"
        headers = {**headers, **_proxy_credentials(urlsplit(route.proxy))}
    while True:
        connection, is_kept = _connection(route, timeout)
        try:
            connection.request("GET", target, headers=headers)
            return connection, connection.getresponse()
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a host that no name can be
            connection.close()
            # The server may have closed a kept connection long ago; another is tried at once.
            if not is_kept or isinstance(error, TimeoutError):
                raise RetryableError(reason_of(error)) from error


def _connection(route: _Route, timeout: float) -> tuple[HTTPConnection, bool]:
    """A connection, and whether it was used before."""
    while True:
        try:
            connection = _idle_on(route).pop()
        except IndexError:
            return _connect(route, timeout), False
        if not _has_unasked_bytes(connection):
            connection.timeout = timeout
            connection.sock.settimeout(timeout)
            return connection, True
        connection.close()


def _has_unasked_bytes(connection: HTTPConnection) -> bool:
    """Whether the server has closed the connection, or sent what would pass for the next response."""
    try:
        poll = select.poll()
        poll.register(connection.sock, select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def _connect(route: _Route, timeout: float) -> HTTPConnection:
    proxy = urlsplit(route.proxy) if route.proxy else None
    if proxy is None:
        return _CONNECTIONS[route.scheme](route.host, timeout=timeout)
    host = proxy.netloc.rpartition("@")[2]
    if route.scheme == "http":
        return _CONNECTIONS[proxy.scheme](host, timeout=timeout)
    connection = HTTPSConnection(host, timeout=timeout)
    connection.set_tunnel(route.host, headers=_proxy_credentials(proxy))
    return connection


def _release(route: _Route, connection: HTTPConnection, response: HTTPResponse) -> None:
    """Keep the connection if the whole response was read, or little of it is left."""
    try:
        if not response.isclosed() and response.length is not None and response.length <= SMALL:
            if connection.sock is not None:
                connection.sock.settimeout(DRAIN_SECONDS)
            response.read()
    except (OSError, HTTPException, ValueError):
        pass
    if response.isclosed() and not response.length and connection.sock is not None:
        _idle_on(route).append(connection)
    else:
        response.close()  # it has the socket, where the server is to end the connection
        connection.close()


def _proxy_credentials(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username or not proxy.password:
        return {}
    return {"Proxy-Authorization": _basic(unquote(proxy.username), unquote(proxy.password))}


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _idle_on(route: _Route) -> list[HTTPConnection]:
    return _idle.setdefault((os.getpid(), route), [])


@atexit.register
def _close_idle() -> None:
    """Close what this process kept; a parent's connections are not its own."""
    for (process, _), connections in _idle.items():
        while connections and process == os.getpid():
            connections.pop().close()

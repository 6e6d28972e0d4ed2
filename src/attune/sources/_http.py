"""HTTP as the fetcher needs it: any byte range of a version, and every failure as what can be done about it."""

import base64
import email.utils
import netrc
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from ssl import SSLError
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from attune.errors import SourceError
from attune.secrets import shown, without_secrets
from attune.sources._fetch import CHUNK, Body, StartOver, TryAgain, Unchanged

PASSING = (408, 425, 429)  # of the errors that are the client's, those that another try may mend
REFUSED = {401: "it wants a user it knows", 403: "this user may not have it, or the permission has run out"}
GONE = (404, 410)


@dataclass(frozen=True, slots=True)
class WebFile:
    """A file at a web address; `headers` such as an authorization go to that host alone."""

    url: str
    timeout: float
    headers: Mapping[str, str]
    known: str | None = None  # the version that need not be sent again
    is_fixed: bool = False  # the address never gets other content
    advice: str = "Check the address."

    @contextmanager
    def open(self, start: int, version: str | None) -> Iterator[Body]:
        """The file from byte `start` of that version on, or all of another one."""
        request = Request(self.url, headers={"User-Agent": "attune", "Accept-Encoding": "identity"})
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)
        if start:
            request.add_header("Range", f"bytes={start}-")
            if version and not self.is_fixed:
                request.add_header("If-Range", version)
        elif self.known:
            request.add_header("If-None-Match" if self.known.startswith('"') else "If-Modified-Since", self.known)
        with self._response(request) as response:
            yield self._body(response, start)

    def _body(self, response: Any, start: int) -> Body:
        headers: HTTPMessage = response.headers
        if headers.get("Content-Encoding", "identity") != "identity":
            raise SourceError(f"{shown(self.url)} comes as {headers['Content-Encoding']}, which was not asked for.")
        begins, size = _range(response, start)
        chunks = _chunks(response)
        first = b"" if begins else next(chunks, b"")
        self._refuse_page(first, headers)
        return Body(_after(first, chunks), begins, size, _version(headers))

    def _response(self, request: Request) -> Any:
        try:
            return _opener().open(request, timeout=self.timeout)
        except HTTPError as error:
            with error:
                raise self._refusal(error) from error
        except (URLError, TimeoutError, ConnectionError, SSLError, HTTPException) as error:
            raise TryAgain(_reason(error)) from error

    def _refusal(self, error: HTTPError) -> Exception:
        said = f"the server answered {error.code} {error.reason}"
        if error.code == 304:
            return Unchanged()
        if error.code == 416:  # the part is longer than the file is now
            return StartOver(said)
        if error.code >= 500 or error.code in PASSING:
            return TryAgain(said, _seconds(error.headers.get("Retry-After")))
        why = REFUSED.get(error.code)
        return SourceError(f"{shown(self.url)} could not be fetched: {said}{f' ({why})' if why else ''}. {self.advice}")

    def _refuse_page(self, first: bytes, headers: HTTPMessage) -> None:
        """A login or error page is not what was asked for, whatever its name."""
        name = urlsplit(self.url).path.lower()
        begin = first[:512].lstrip().lower()
        if name.endswith((".html", ".htm")) or not begin.startswith((b"<!doctype html", b"<html")):
            return
        title = re.search(rb"<title[^>]*>\s*(.*?)\s*</title>", first[:20_000], re.IGNORECASE | re.DOTALL)
        named = f" ({without_secrets(title[1].decode(errors='replace')[:80])!r})" if title else ""
        raise SourceError(
            f"{shown(self.url)} is a web page{named}, not a file. Use the address that downloads it; "
            "if it wants a login, download it yourself and give its path."
        )


class _Redirects(HTTPRedirectHandler):
    """Follows to other web addresses, never from https to http; what opens this host's doors stays with this host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == ("https", "http"):
            raise SourceError(f"{shown(req.full_url)} leads on to {shown(newurl)}, which is not safe to follow.")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request and (before.scheme, before.netloc) == (after.scheme, after.netloc):
            for name, value in req.unredirected_hdrs.items():
                if name.lower() != "host":
                    request.add_unredirected_header(name, value)
        return request


def _opener() -> OpenerDirector:
    return build_opener(_Redirects)


def credentials(host: str) -> Mapping[str, str]:
    """The authorization that ~/.netrc (or $NETRC) has for a host."""
    try:
        found = netrc.netrc().authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return {}
    if found is None:
        return {}
    login = f"{found[0]}:{found[2]}".encode()
    return {"Authorization": f"Basic {base64.b64encode(login).decode()}"}


def _chunks(response: Any) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read1(CHUNK)
        except (OSError, HTTPException, ValueError) as error:
            raise TryAgain(_reason(error)) from error
        if not chunk:
            return
        yield chunk


def _after(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from chunks


def _range(response: Any, start: int) -> tuple[int, int | None]:
    """The first byte that comes, and the size of the whole file."""
    length = response.headers["Content-Length"]
    if response.status != 206:
        return 0, int(length) if length and length.isdigit() else None
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not found:
        raise TryAgain("the server sent a part without saying which")
    return int(found[1]), None if found[3] == "*" else int(found[3])


def _version(headers: HTTPMessage) -> str | None:
    """A strong ETag, or when it was last changed."""
    tag = headers.get("ETag", "")
    return tag if tag.startswith('"') else headers.get("Last-Modified")


def _seconds(retry_after: str | None) -> float:
    """Seconds from now, whichever of its two forms the header has."""
    if not retry_after:
        return 0.0
    if retry_after.strip().isdigit():
        return float(retry_after)
    moment = email.utils.parsedate_tz(retry_after)
    return max(0.0, email.utils.mktime_tz(moment) - time.time()) if moment else 0.0


def _reason(error: BaseException) -> str:
    reason = getattr(error, "reason", error)
    return without_secrets(str(reason)) or type(error).__name__

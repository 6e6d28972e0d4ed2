"""Which bytes of a file a response has, of how many and of which version: believed only where that makes sense."""

import email.utils
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse

from attune.errors import SourceError
from attune.secrets import without_secrets
from attune.sources._fetch import CHUNK
from attune.sources._retry import RetryableError

COUNT = "[0-9]{1,18}"


def seconds_until(retry_after: str | None) -> float:
    """Seconds from now, whichever of its two forms the Retry-After header has."""
    if not retry_after:
        return 0.0
    if re.fullmatch(r"\s*[0-9]+\s*", retry_after):
        return float(retry_after)
    try:
        moment = email.utils.parsedate_tz(retry_after)
        return max(0.0, email.utils.mktime_tz(moment) - time.time()) if moment else 0.0
    except (ValueError, OverflowError, TypeError):  # a date that no calendar has
        return 0.0


def title_of(page: bytes) -> str:
    """The title of a web page, in brackets, for a message."""
    title = re.search(rb"<title[^>]*>\s*(.*?)\s*</title>", page[:20_000], re.IGNORECASE | re.DOTALL)
    return f" ({printable(title[1].decode(errors='replace'))!r})" if title else ""


def printable(text: str) -> str:
    """A server's words in one short line of a message."""
    return without_secrets("".join(letter if letter.isprintable() else " " for letter in text[:200]).strip())


def read_chunks(response: HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read1(CHUNK)
        except (OSError, HTTPException, ValueError) as error:
            raise RetryableError(reason_of(error)) from error
        if response.chunked and (response.chunk_left or 0) < 0:  # http.client reads on, headers of chunks and all
            raise RetryableError("the server sent a chunk of negative size", restart=True)
        if not chunk:
            return
        yield chunk


def at_most_bytes(chunks: Iterator[bytes], count: int | None) -> Iterator[bytes]:
    """The chunks of a body that was announced to have `count` bytes; a shorter one is noticed by its file's size."""
    done = 0
    for chunk in chunks:
        done += len(chunk)
        if count is not None and done > count:
            raise RetryableError(f"the server sent more than the announced {count} bytes", restart=True)
        yield chunk


def read_all(response: HTTPResponse, at_most: int) -> bytes:
    """The whole body of a response that fits into memory."""
    extent = extent_of(response)
    received = bytearray()
    for chunk in read_chunks(response):
        received += chunk
        if len(received) > at_most:
            raise SourceError(f"The server sent more than {at_most / 1e6:.0f} MB in one answer. Check the URL.")
    if extent.count not in (None, len(received)):
        raise RetryableError(f"received {len(received)} of {extent.count} bytes")
    return bytes(received)


@dataclass(frozen=True, slots=True)
class BodyExtent:
    """Which bytes of a file a response has: from `begin` on, `count` of them if that is known, of `size`."""

    begin: int
    count: int | None
    size: int | None
    is_delimited: bool = True  # whether an early end can be noticed


def extent_of(response: HTTPResponse) -> BodyExtent:
    lengths = set(response.headers.get_all("Content-Length", ()))
    if response.chunked:  # the length is ignored then
        lengths = set()
    if len(lengths) > 1 or not all(re.fullmatch(COUNT, length) for length in lengths):
        raise RetryableError(f"the server sent the Content-Length {printable(', '.join(sorted(lengths)))!r}")
    length = int(lengths.pop()) if lengths else None
    if response.status != 206:
        return BodyExtent(0, length, length, is_delimited=response.chunked or length is not None)
    found = re.fullmatch(rf"bytes ({COUNT})-({COUNT})/({COUNT}|\*)", response.headers.get("Content-Range", ""))
    if not found:
        raise RetryableError("the server sent a part without a Content-Range of bytes")
    begin, end, size = int(found[1]), int(found[2]) + 1, None if found[3] == "*" else int(found[3])
    if end <= begin or (size is not None and end > size) or length not in (None, end - begin):
        raise RetryableError(f"the server sent a part with the Content-Range {found[0]!r}, which is impossible")
    return BodyExtent(begin, end - begin, size)


def version_of(headers: HTTPMessage) -> str | None:
    """A strong ETag, or else Last-Modified; neither, if it could not be sent back."""
    tag, date = headers.get("ETag", ""), headers.get("Last-Modified", "")
    if re.fullmatch(r'"[\x21\x23-\x7e\x80-\xff]*"', tag):
        return tag
    return date if re.fullmatch(r"[\w ,:+-]{1,50}", date, re.ASCII) else None


def reason_of(error: BaseException) -> str:
    return printable(str(error)) or type(error).__name__

"""An HTTP server with ranges and ETags that stalls, truncates, refuses and corrupts as it is told."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Quiet(BaseHTTPRequestHandler):
    """Answers without writing to the terminal, and keeps connections open."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """Ends with its connections: a client that kept one finds that nobody is there."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *words):
        super().__init__(*words)
        self.connections = set()

    def process_request(self, request, client_address):
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self.connections.discard(request)
        super().shutdown_request(request)

    def server_close(self):
        super().server_close()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        """Clients that are killed or hang up are part of the tests."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers with `handler`."""
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(timeout=5)
        server.server_close()


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer: an error status, a stall or an end after so many bytes, a changed byte."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    stall_after: int | None = None
    end_after: int | None = None
    corrupt: bool = False
    wait: float = 0.0  # before each chunk


@dataclass
class Site:
    """Files by path, the faults of coming answers, and a record of what was asked and sent."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)  # each for one answer; those after are sound
    types: dict[str, str] = field(default_factory=dict)
    has_ranges: bool = True
    has_tags: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range
    seen_headers: list[dict[str, str]] = field(default_factory=list)
    sent: int = 0
    complete: int = 0  # answers that carried a file to its last byte
    lock: threading.Lock = field(default_factory=threading.Lock)
    released: threading.Event = field(default_factory=threading.Event)

    def next_fault(self) -> Fault:
        with self.lock:
            return self.faults.pop(0) if self.faults else Fault()


def tag_of(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:16]}"'


@contextmanager
def web(site: Site) -> Iterator[str]:
    """Serve a site."""

    class Handler(Quiet):
        def do_GET(self):
            answer(self, site)

    with serving(Handler) as url:
        try:
            yield url
        finally:
            site.released.set()


def answer(request: BaseHTTPRequestHandler, site: Site) -> None:
    path = request.path.partition("?")[0]
    with site.lock:
        site.asked.append((path, request.headers["Range"]))
        site.seen_headers.append(dict(request.headers))
    fault = site.next_fault()
    body = site.files.get(request.path, site.files.get(path))
    if fault.status or body is None:
        return refuse(request, fault.status or 404, fault.headers)
    send_file(request, site, body, fault, site.types.get(path, "application/octet-stream"))


def refuse(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":  # whose answer has no body
        request.wfile.write(body)


def send_file(
    request: BaseHTTPRequestHandler,
    site: Site,
    body: bytes,
    fault: Fault,
    kind: str,
    headers: dict[str, str] | None = None,
) -> None:
    headers = headers or {}
    tag = headers.get("ETag") or tag_of(body)
    if site.has_tags and request.headers["If-None-Match"] == tag:
        return refuse(request, 304, {"ETag": tag})
    start, last, is_part = wanted_bytes(request, site, tag, len(body))
    if start > 0 and start >= len(body):
        return refuse(request, 416, {"Content-Range": f"bytes */{len(body)}"})
    request.send_response(206 if is_part else 200)
    if is_part:
        request.send_header("Content-Range", f"bytes {start}-{last}/{len(body)}")
    for name, value in {**({"ETag": tag} if site.has_tags else {}), **headers, "Content-Type": kind}.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(last + 1 - start))
    request.end_headers()
    if request.command == "HEAD":
        return
    content = corrupted(body) if fault.corrupt else body
    end = last + 1 if fault.end_after is None else min(last + 1, start + fault.end_after)
    stall = None if fault.stall_after is None else start + fault.stall_after
    send_bytes(request, site, content, start, end if stall is None else min(end, stall), fault.wait)
    if stall is not None:
        site.released.wait(timeout=20)
    if end <= last or stall is not None:
        request.close_connection = True
        return
    with site.lock:
        site.complete += 1


def send_bytes(request, site: Site, content: bytes, start: int, end: int, wait: float) -> None:
    for position in range(start, end, 1 << 20):
        chunk = content[position : min(end, position + (1 << 20))]
        request.wfile.write(chunk)
        with site.lock:
            site.sent += len(chunk)
        if wait and site.released.wait(wait):
            return


def wanted_bytes(request: BaseHTTPRequestHandler, site: Site, tag: str, size: int) -> tuple[int, int, bool]:
    """The first and the last byte that are asked for, and whether a range was."""
    wanted = request.headers["Range"]
    is_same = request.headers["If-Range"] in (None, tag)
    if not wanted or not site.has_ranges or not is_same:
        return 0, size - 1, False
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    return int(first), min(int(last), size - 1) if last else size - 1, True


def corrupted(body: bytes) -> bytes:
    """The same length, and one byte is another."""
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]

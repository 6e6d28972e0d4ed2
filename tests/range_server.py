"""A real HTTP server on loopback that serves a folder by byte ranges, and can be slow, drop connections and say 503."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

PIECE = 1 << 16


@dataclass
class Behavior:
    """What the server does; counts down what is to happen only so often."""

    latency: float = 0.0  # seconds before each answer
    bytes_per_second: float | None = None  # of all connections together
    drops: int = 0  # so many answers end in the middle
    refusals: int = 0  # so many answers are 503
    redirect_to: str | None = None
    ignores_ranges: bool = False
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)  # path, Range, Authorization
    sent: int = 0
    answering: int = 0  # requests at this moment
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    free_at: float = 0.0

    def take(self, what: str) -> bool:
        with self.lock:
            left = getattr(self, what)
            setattr(self, what, max(0, left - 1))
            return left > 0

    def pass_through(self, count: int) -> None:
        """Wait for a turn on a line that carries so many bytes a second."""
        if self.bytes_per_second is None:
            return
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + count / self.bytes_per_second
            until = self.free_at
        time.sleep(max(0.0, until - time.monotonic()))


@contextmanager
def serving(folder: Path, behavior: Behavior) -> Iterator[str]:
    """The URL of the folder while the server runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def do_GET(self):
            asked = self.headers.get("Range")
            with behavior.lock:
                behavior.requests.append((self.path, asked, self.headers.get("Authorization")))
                behavior.answering += 1
                behavior.most_at_once = max(behavior.most_at_once, behavior.answering)
            time.sleep(behavior.latency)
            with behavior.lock:
                behavior.answering -= 1
            path = folder / unquote(self.path.lstrip("/").partition("?")[0])
            if behavior.redirect_to:
                return self.plain(302, {"Location": behavior.redirect_to + self.path})
            if not path.is_file():
                return self.plain(404)
            if behavior.take("refusals"):
                return self.plain(503)
            size = path.stat().st_size
            first, last = 0, size - 1
            if asked and not behavior.ignores_ranges:
                first, last = (int(each) for each in asked.removeprefix("bytes=").split("-"))
                last = min(last, size - 1)
                if first >= size:
                    return self.plain(416)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(last - first + 1))
            self.end_headers()
            self.send(path, first, last + 1)

        def send(self, path: Path, first: int, end: int) -> None:
            if behavior.take("drops"):
                end = first + (end - first) // 2
                self.close_connection = True
            with path.open("rb") as file:
                file.seek(first)
                while first < end:
                    piece = file.read(min(PIECE, end - first))
                    behavior.pass_through(len(piece))
                    with behavior.lock:  # before it goes: whoever has received it may look at once
                        behavior.sent += len(piece)
                    self.wfile.write(piece)
                    first += len(piece)

        def plain(self, status: int, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": "0", **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

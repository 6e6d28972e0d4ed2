"""Whatever a server answers: the right bytes or one clear SourceError, in bounded requests and time, nothing partial.

CASES=N runs more cases than usual, SEED=N others.
"""

import json
import os
import random
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from attune.errors import SourceError
from attune.sources import Cache, RetryPolicy, _http, _hub_api, _ranges, hf, https, locate, read_range

pytestmark = pytest.mark.recipe

CASES = int(os.environ.get("CASES", "200"))
SEED = int(os.environ.get("SEED", "0"))
CONTENT = bytes(range(256)) * 40
TAG = '"v1"'
QUICK = RetryPolicy(timeout=0.1, tries=4, first_wait=0.001, longest_wait=0.002)
MOST_REQUESTS = 110  # tries of one transfer, each redirected at most ten times, and then some
LOCATIONS = [
    "",
    "/a",
    "/b",
    "//",
    "http://",
    "http://[",
    "http://h:x/",
    "ftp://h/a",
    "\x1b[2J",
    "http://\xff/",
    "a" * 70000,
]
LENGTHS = ["-1", "x", "", "9" * 30, "1e3", "+5", "\xb2", str(len(CONTENT) + 5)]
RANGES = ["", "bytes", "bytes 5-1/10", "bytes 0-9/*", "bytes */10", "bytes 0-9/5", "items 0-9/10", "bytes 7-99/100"]
TAGS = [TAG, "W/" + TAG, "x", '"', '"\x01"', '"a\r\n b"']
PAUSES = ["0", "99999999", "-1", "soon", "\xb2", "Wed, 99 Oct 99999 07:28:00 GMT"]
VALUES = [None, [], {}, 1, "x", [None], [[]], [{"type": "file"}], {"sha": 5}, {"sha": "../x"}, {"error": "x" * 9}]


@contextmanager
def answering(answer):
    """A server that sends what `answer(path, headers)` returns, and hangs up; and a list of what was requested."""
    server, asked, is_over = socket.create_server(("127.0.0.1", 0)), [], threading.Event()
    server.settimeout(0.05)

    def serve(connection):
        with connection:
            connection.settimeout(2)
            try:
                request = b""
                while b"\r\n\r\n" not in request:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    request += piece
                lines = request.decode("latin-1").split("\r\n")
                path = lines[0].split()[1]
                asked.append(path)
                sent, stall = answer(path, dict(line.split(": ", 1) for line in lines[1:] if ": " in line))
                connection.sendall(sent)
                if stall:
                    is_over.wait(0.3)
            except OSError:
                pass

    def accept():
        while not is_over.is_set():
            try:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
            except TimeoutError:
                continue

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
    finally:
        is_over.set()
        thread.join()
        server.close()
        for kept in _http._idle.values():
            while kept:
                kept.pop().close()


def response(status, headers, body):
    head = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body


def sound(headers, content, has_ranges=True):
    wanted = headers.get("Range") if has_ranges else None
    if not wanted:
        return 200, [("Content-Length", len(content)), ("ETag", TAG)], content
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    first, last = int(first), min(int(last or len(content) - 1), len(content) - 1)
    if first >= len(content):
        return 416, [("Content-Range", f"bytes */{len(content)}"), ("Content-Length", 0)], b""
    part = content[first : last + 1]
    about = [("Content-Length", len(part)), ("Content-Range", f"bytes {first}-{last}/{len(content)}"), ("ETag", TAG)]
    return 206, about, part


def chunked(chance, body):
    sizes = [f"{len(body):x}"] * 6 + ["-5", "x", "", f"{len(body) + 3:x}", f"0x{len(body):x}"]
    end = chance.choice([b"0\r\n\r\n"] * 4 + [b"", b"-1\r\n", b"0\r\n"])
    return f"{chance.choice(sizes)}\r\n".encode() + body + b"\r\n" + end


def put(headers, name, value):
    return [*(each for each in headers if each[0] != name), (name, value)]


def faulty(chance, request, content=CONTENT):
    """One answer with something wrong with it, and whether it stalls before its end."""
    status, headers, body = sound(request, content, has_ranges=chance.random() < 0.7)
    match chance.randrange(14):
        case 0:
            status = chance.choice([100, 101, 204, 206, 226, 301, 304, 404, 408, 416, 429, 500, 503, 600, 999])
        case 1:
            return response(chance.choice([301, 302, 307, 308]), [("Location", chance.choice(LOCATIONS))], b""), False
        case 2:
            headers = put(headers, "Content-Length", chance.choice(LENGTHS))
        case 3:
            headers = [*headers, ("Content-Length", chance.choice([*LENGTHS, "0", "10"]))]
        case 4:
            status, headers = 206, put(headers, "Content-Range", chance.choice(RANGES))
        case 5:
            headers = put(headers, "ETag", chance.choice(TAGS))
        case 6:
            body = body[: chance.randrange(len(body) + 1)]
        case 7:
            return response(status, headers, body[: chance.randrange(len(body) + 1)]), True
        case 8:
            headers = [each for each in headers if each[0] != chance.choice(["Content-Length", "ETag"])]
            body = body[: chance.choice([len(body), len(body) // 2])]
        case 9:
            headers = [("Transfer-Encoding", "chunked"), *(each for each in headers if each[0] != "Content-Length")]
            body = chunked(chance, body)
        case 10:
            body += response(200, [("Content-Length", 5)], b"wrong")
        case 11:
            status, headers = chance.choice([429, 503]), [("Retry-After", chance.choice(PAUSES)), ("Content-Length", 0)]
            body = b""
        case 12:
            return chance.randbytes(chance.randrange(200)), False
        case 13:  # a total that shrinks under one ETag
            status, headers, body = sound(request, content[: len(content) - chance.randrange(1, 9000)])
            if status == 200:
                return response(*sound(request, content)[:2], content[: chance.randrange(len(content))]), False
    return response(status, headers, body), False


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def check(cache, asked, get, content=CONTENT):
    """Run one case; the outcome is the right content, or an error of one line and nothing that looks finished."""
    begun = time.monotonic()
    try:
        assert get() == content
    except SourceError as error:
        message = str(error)
        assert message.isprintable() and len(message) < 2000, message
        assert all(path.parent.name == "parts" for path in files_in(cache.folder)), message
    assert len(asked) <= MOST_REQUESTS
    assert time.monotonic() - begun < 10


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for module in (_ranges, https, hf):
        monkeypatch.setattr(module, "RANGE_READS", QUICK)
    monkeypatch.setattr(_hub_api, "MOST_PAGES", 20)
    for name in ("http_proxy", "HTTP_PROXY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def faults(case):
    """A chance for one case, and how many answers go wrong before the server is sound; some never are."""
    chance = random.Random(f"{SEED} {case}")
    return chance, chance.choice([1, 2, 3, 10_000])


@pytest.mark.timeout(max(120, CASES))
def test_a_download_is_right_or_refused(tmp_path):
    for case in range(CASES):
        chance, bad = faults(case)
        cache, left = Cache(tmp_path / str(case), retry=QUICK), iter(range(bad))

        def answer(path, headers, chance=chance, left=left):
            return faulty(chance, headers) if next(left, None) is not None else (response(*sound(headers, CONTENT)), 0)

        with answering(answer) as (url, asked):
            check(cache, asked, lambda: locate(f"{url}/a", cache).read_bytes())  # noqa: B023


@pytest.mark.timeout(max(120, CASES))
def test_a_range_is_right_or_refused(tmp_path):
    for case in range(CASES // 3):
        chance, bad = faults(case)
        left, start = iter(range(bad)), chance.randrange(5000)

        def answer(path, headers, chance=chance, left=left):
            return faulty(chance, headers) if next(left, None) is not None else (response(*sound(headers, CONTENT)), 0)

        with answering(answer) as (url, asked):
            get = lambda: read_range(f"{url}/a", start, 4000)  # noqa: E731, B023
            check(Cache(tmp_path), asked, get, CONTENT[start : start + 4000])


@pytest.mark.timeout(max(120, CASES))
def test_a_listing_of_the_hub_is_right_or_refused(tmp_path, monkeypatch):
    from servers.hub import Blob

    blob = Blob(CONTENT, is_lfs=True)
    entry = {"type": "file", "path": "a", "size": len(CONTENT), "oid": blob.git, "lfs": {"oid": blob.sha256}}
    for case in range(CASES // 3):
        chance, bad = faults(case)
        cache, left = Cache(tmp_path / str(case), retry=QUICK), iter(range(bad))

        def answer(path, headers, chance=chance, left=left):
            value = {"sha": "1" * 40} if "/api/" in path and "/tree/" not in path else [entry]
            content = CONTENT if "/resolve/" in path else json.dumps(value).encode()
            if next(left, None) is None:
                return response(*sound(headers, content)), False
            if "/resolve/" in path or chance.random() < 0.5:
                return faulty(chance, headers, content)
            odd = chance.choice(
                [*(json.dumps(each) for each in VALUES), "<html><title>Log in</title>", "[" * 99999, ""]
            )
            link = [("Link", f'<{path}&cursor={chance.random()}>; rel="next"')] * chance.randrange(2)
            return response(200, [("Content-Length", len(odd)), *link], odd.encode()), False

        with answering(answer) as (url, asked):
            monkeypatch.setenv("HF_ENDPOINT", url)
            check(cache, asked, lambda: locate("hf://org/name/a", cache).read_bytes())  # noqa: B023

"""Every test talks to a real server on this machine."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from attune.catalog import find
from attune.errors import SourceError
from attune.sources.https import Download

quick = Download(timeout=0.3, waits=(0.0, 0.0))


@contextmanager
def serving(answer: Callable[[BaseHTTPRequestHandler, int], None]) -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and the paths asked of it; `answer` gets the request and how many came before."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            answer(self, len(asked) - 1)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join(timeout=5)
        server.server_close()


def send(request: BaseHTTPRequestHandler, body: bytes, status: int = 200, announced: int | None = None) -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(len(body) if announced is None else announced))
    request.end_headers()
    request.wfile.write(body)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_fetched_once(tmp_path):
    with serving(lambda request, _: send(request, b"weights")) as (url, asked):
        first = quick(f"{url}/model.bin", tmp_path)
        second = quick(f"{url}/model.bin", tmp_path)
    assert first == second
    assert first.name == "model.bin"
    assert first.read_bytes() == b"weights"
    assert asked == ["/model.bin"]
    assert files_in(tmp_path) == [first]


def test_the_same_name_from_two_addresses_is_two_files(tmp_path):
    with serving(lambda request, _: send(request, request.path.encode())) as (url, _):
        small, large = quick(f"{url}/small/model.bin", tmp_path), quick(f"{url}/large/model.bin", tmp_path)
    assert small.read_bytes() == b"/small/model.bin"
    assert large.read_bytes() == b"/large/model.bin"


def test_a_busy_server_is_asked_again(tmp_path):
    with serving(lambda request, before: send(request, b"ok", 503 if before < 2 else 200)) as (url, asked):
        assert quick(f"{url}/a", tmp_path).read_bytes() == b"ok"
    assert len(asked) == 3


def test_a_body_that_is_cut_short_is_fetched_again(tmp_path):
    with serving(lambda request, before: send(request, b"whole"[: 2 + 3 * before], announced=5)) as (url, asked):
        assert quick(f"{url}/a", tmp_path).read_bytes() == b"whole"
    assert len(asked) == 2


def test_a_server_that_never_sends_all_of_it_leaves_nothing_behind(tmp_path):
    with (
        serving(lambda request, _: send(request, b"12", announced=5)) as (url, _),
        pytest.raises(SourceError, match=r"only 2 of 5 bytes came, 3 times.*give its path"),
    ):
        quick(f"{url}/a", tmp_path)
    assert files_in(tmp_path) == []


def test_a_server_that_stays_silent_is_left_after_the_timeout(tmp_path):
    done = threading.Event()
    with serving(lambda *_: done.wait(timeout=10)) as (url, asked):
        with pytest.raises(SourceError, match="timed out, 3 times"):
            quick(f"{url}/a", tmp_path)
        done.set()
    assert len(asked) == 3


def test_what_is_not_there_is_not_asked_for_twice(tmp_path):
    with (
        serving(lambda request, _: send(request, b"", 404)) as (url, asked),
        pytest.raises(SourceError, match="answered 404 Not Found. Check the address"),
    ):
        quick(f"{url}/a", tmp_path)
    assert len(asked) == 1


def test_nobody_listening_is_said(tmp_path):
    with serving(lambda *_: None) as (url, _):
        pass
    with pytest.raises(SourceError, match="refused"):
        quick(f"{url}/a", tmp_path)


@pytest.mark.parametrize("address", ["https://", "https://[", "http://host:port/a", "https:///a"])
def test_what_is_no_address_is_refused_at_once(address, tmp_path):
    with pytest.raises(SourceError, match="is not a web address"):
        find("sources", address.partition(":")[0])(address, tmp_path)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "file"),
        ("/..", "file"),
        ("/a%2Fb/c%20d.wav?x=1", "c_d.wav"),
        ("/.hidden", "hidden"),
        (f"/{'x' * 300}", "x" * 100),
    ],
)
def test_the_name_in_the_cache_is_safe(path, name, tmp_path):
    with serving(lambda request, _: send(request, b"1")) as (url, _):
        assert quick(url + path, tmp_path).name == name


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "web").write_text("in the way")
    with pytest.raises(SourceError, match="could not be written to .*ATTUNE_CACHE"):
        quick("http://127.0.0.1:9/a", tmp_path)

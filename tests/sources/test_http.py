"""The one transport: what downloads and range reads have in common, against real servers on this machine."""

import subprocess
import sys
import threading
import time
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from attune.errors import SourceError
from attune.sources import Cache, RetryPolicy, _http, _ranges, locate, read_range, size_of

from servers.web import Fault, Quiet, Site, answer, refuse, serving, web

CONTENT = bytes(range(256)) * 4000
ONCE = RetryPolicy(timeout=2.0, tries=1)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", retry=ONCE)


@pytest.fixture(autouse=True)
def once(monkeypatch):
    """Nothing is tried again, so that whatever works does so at once; and no proxy is set."""
    monkeypatch.setattr(_ranges, "RANGE_READS", ONCE)
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def counting(site, hangs_up=False):
    """A server of a site, and its connections; one that hangs up does so after each answer, without a word."""
    opened = []

    class Handler(Quiet):
        def setup(self):
            opened.append(threading.get_ident())
            super().setup()

        def do_GET(self):
            answer(self, site)
            self.close_connection = self.close_connection or hangs_up

    return serving(Handler), opened


def test_a_process_ends_with_its_kept_connections_closed():
    server, _ = counting(Site({"/a": CONTENT}, []))
    code = "import sys; from attune.sources import read_range; read_range(sys.argv[1], 0, 9)"
    with server as url:
        asked = [sys.executable, "-W", "always::ResourceWarning", "-c", code, f"{url}/a"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert "ResourceWarning" not in done.stderr


def test_downloads_sizes_ranges_and_redirects_share_a_connection(cache):
    site = Site({"/a": CONTENT, "/b": b"two", "/c": b""}, [])
    server, opened = counting(site)
    with server as url:
        assert locate(f"{url}/a", cache).read_bytes() == CONTENT
        assert size_of(f"{url}/a") == len(CONTENT)
        assert read_range(f"{url}/a", 1000, 100_000) == CONTENT[1000:101_000]
        site.faults = [Fault(302, {"Location": "/b"})]
        assert locate(f"{url}/c", cache).read_bytes() == b"two"
        with pytest.raises(SourceError, match="404"):
            size_of(f"{url}/none")
        assert size_of(f"{url}/b") == 3
    assert len(opened) == 1


def test_a_kept_connection_that_the_server_has_closed_is_replaced_at_once(cache):
    server, opened = counting(Site({"/a": CONTENT}), hangs_up=True)
    with server as url:
        for start in range(3):
            assert read_range(f"{url}/a", start, 10) == CONTENT[start : start + 10]
    assert len(opened) == 3


def test_a_silent_server_is_left_after_the_timeout(monkeypatch):
    monkeypatch.setattr(_ranges, "RANGE_READS", replace(ONCE, timeout=0.2))
    monkeypatch.setattr("attune.sources.https.RANGE_READS", replace(ONCE, timeout=0.2))
    site = Site({"/a": CONTENT})
    with web(site) as url:
        assert read_range(f"{url}/a", 0, 10) == CONTENT[:10]
        site.faults = [Fault(stall_after=5)]
        with pytest.raises(SourceError, match=r"timed out \(1 attempts"):
            read_range(f"{url}/a", 0, 10)


def test_endless_redirects_are_refused(cache):
    site = Site({}, [Fault(302, {"Location": "/a"})] * 30)
    with web(site) as url, pytest.raises(SourceError, match="redirected more than 10 times"):
        locate(f"{url}/a", cache)
    assert len(site.asked) == 11


@pytest.mark.parametrize("location", ["ftp://host/a", "http://me:5ecret@host/a", "file:///etc/passwd"])
def test_an_unsafe_redirect_is_refused_without_repeating_a_password(cache, location):
    site = Site({}, [Fault(302, {"Location": location})])
    with web(site) as url, pytest.raises(SourceError, match="which is not safe to follow") as refused:
        locate(f"{url}/a", cache)
    assert "5ecret" not in str(refused.value)


def test_a_redirect_from_https_to_http_is_not_followed_and_no_token_changes_its_host():
    safe, plain = urlsplit("https://host/a"), urlsplit("http://host/a")
    token = {"Authorization": "Bearer hf_secret"}
    with pytest.raises(SourceError, match="https://host/a redirects to http://host/a, which is not safe to follow"):
        _http.credentials_after(safe, plain, token)
    assert _http.credentials_after(plain, safe, token) == {}
    assert _http.credentials_after(safe, safe, token) == token


class Proxy:
    """A forward proxy that answers for every host from one site, and lets nobody through to TLS."""

    def __init__(self, site):
        self.site, self.seen = site, []

    def serving(self):
        proxy = self

        class Handler(Quiet):
            def do_GET(self):
                proxy.seen.append((self.path, self.headers["Host"], self.headers["Proxy-Authorization"]))
                self.path = urlsplit(self.path).path
                answer(self, proxy.site)

            def do_CONNECT(self):
                proxy.seen.append((self.path, None, self.headers["Proxy-Authorization"]))
                refuse(self, 403, {})

        return serving(Handler)


def test_downloads_and_ranges_go_through_the_proxy_of_the_environment(cache, monkeypatch):
    proxy = Proxy(Site({"/a": CONTENT}))
    with proxy.serving() as url:
        monkeypatch.setenv("http_proxy", url.replace("//", "//me:5ecret@"))
        assert locate("http://files.example/a", cache).read_bytes() == CONTENT
        assert read_range("http://files.example/a?v=1", 5, 10) == CONTENT[5:15]
    basic = "Basic bWU6NWVjcmV0"
    assert proxy.seen == [(f"http://files.example/a{end}", "files.example", basic) for end in ("", "?v=1")]


def test_https_goes_through_a_tunnel_and_the_proxys_password_is_not_repeated(cache, monkeypatch):
    proxy = Proxy(Site())
    with proxy.serving() as url:
        monkeypatch.setenv("https_proxy", url.replace("http://", "me:5ecret@"))  # a scheme may be left out
        for call in (lambda address: locate(address, cache), size_of):
            with pytest.raises(SourceError, match="403") as refused:
                call("https://files.example/a")
            assert "5ecret" not in str(refused.value)
    assert proxy.seen == [("files.example:443", None, "Basic bWU6NWVjcmV0")] * 2


def test_a_host_in_no_proxy_is_reached_directly(cache, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with web(Site({"/a": CONTENT})) as url:
        assert read_range(f"{url}/a", 5, 10) == CONTENT[5:15]


def test_a_proxy_of_another_kind_is_refused(cache, monkeypatch):
    monkeypatch.setenv("https_proxy", "socks5://me:5ecret@127.0.0.1:9")
    with pytest.raises(SourceError, match="https_proxy is a socks5 proxy. Expected http://HOST:PORT") as refused:
        locate("https://files.example/a", cache)
    assert "5ecret" not in str(refused.value)


def saying(*responses):
    """A server that sends these bytes, one after the other, each on a connection of its own; the last one for ever."""
    left = list(responses)

    class Handler(Quiet):
        def do_GET(self):
            self.wfile.write(left.pop(0) if len(left) > 1 else left[0])
            self.close_connection = True

    return serving(Handler)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-4/*\r\nContent-Length: 5\r\n\r\nwrong",
            "instead of all of it",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "answered 204 No Content"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nwrong", "sent the Content-Length 'x'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 9\r\n\r\nwrong", "sent the Content-Length '5, 9'"),
        (b"HTTP/1.1 200 OK\r\n\r\nwrong", "sends no size, so a truncated download would go unnoticed"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "304 Not Modified to a request without conditions"),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", r"302 Found \(a redirect without a target\)"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
            "to 'http://\\[', which is not a web address",
        ),
        (b"HTTP/1.1 302 Found\r\nLocation: http://h:x/\r\nContent-Length: 0\r\n\r\n", "which is not a web address"),
        (b"HTTP/1.1 404 \x1b[2J\r\nContent-Length: 0\r\n\r\n", r"answered 404 \[2J"),
    ],
)
def test_what_is_not_the_whole_file_is_refused_in_one_line(cache, said, message):
    with saying(said) as url, pytest.raises(SourceError, match=message) as refused:
        locate(f"{url}/a", cache)
    assert str(refused.value).isprintable()
    assert not list((cache.folder / "objects").glob("*/*"))


def test_a_size_that_shrinks_under_one_tag_begins_the_download_anew(cache):
    head = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 10\r\n\r\n'
    rest = b'HTTP/1.1 206 P\r\nETag: "1"\r\nContent-Range: bytes 5-7/8\r\nContent-Length: 3\r\n\r\n567'
    patient = replace(cache, retry=RetryPolicy(timeout=2.0, tries=3, first_wait=0.01, longest_wait=0.02))
    with saying(head + b"01234", rest, head + b"0123456789") as url:
        assert locate(f"{url}/a", patient).read_bytes() == b"0123456789"


def test_what_follows_a_response_unasked_is_never_taken_for_the_next(cache):
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"

    class Handler(Quiet):
        def do_GET(self):
            self.wfile.write(b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nright")
            self.wfile.flush()
            time.sleep(0.05)
            self.wfile.write(extra)

    with serving(Handler) as url:
        assert read_range(f"{url}/a", 0, 5) == b"right"
        time.sleep(0.2)
        assert read_range(f"{url}/a", 0, 5) == b"right"

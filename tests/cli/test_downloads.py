"""Downloads as a person sees them."""

import io

from attune.cli._downloads import Downloads
from attune.sources import DownloadProgress

MB = 1_000_000


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_file_a_large_download_is_a_line_now_and_then_and_a_small_one_none():
    now = [0.0]
    stream = io.StringIO()
    watch = Downloads(stream, clock=lambda: now[0])
    watch(DownloadProgress("hf://a/b/config.json", 500, 500))
    for done in range(1, 31):
        now[0] += 1.0
        watch(DownloadProgress("hf://a/b/model", done * MB, 30 * MB))
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "downloading hf://a/b/model: 30 of 30 MB"
    assert len(lines) == 3


def test_on_a_terminal_there_is_a_bar_for_each_file_and_it_goes_away():
    stream = Terminal()
    watch = Downloads(stream)
    for source in ("hf://a/b/one", "hf://a/b/two"):
        watch(DownloadProgress(source, 2 * MB, 4 * MB))
    assert "hf://a/b/one" in stream.getvalue() and "hf://a/b/two" in stream.getvalue()
    for source in ("hf://a/b/one", "hf://a/b/two"):
        watch(DownloadProgress(source, 4 * MB, 4 * MB))
    assert watch._bars == {}


def test_a_stall_is_shown_also_for_a_small_file():
    lines, screen = io.StringIO(), Terminal()
    for stream in (lines, screen):
        watch = Downloads(stream)
        watch(DownloadProgress("hf://a/b/config.json", 5, 500, "no data from the server (5 s)"))
        watch(DownloadProgress("hf://a/b/config.json", 500, 500))
        assert watch._bars == {}
    assert lines.getvalue() == "waiting for hf://a/b/config.json: no data from the server (5 s)\n"
    assert "no data from the server (5 s)" in screen.getvalue()

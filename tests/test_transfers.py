"""Transfers as a person sees them."""

import io
import time

from attune.files import growing
from attune.sources import TransferProgress, UploadedBytes
from attune.transfers import Transfers

MB = 1_000_000


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_file_a_large_download_is_a_line_now_and_then_and_a_small_one_none():
    now = [0.0]
    stream = io.StringIO()
    watch = Transfers(stream, clock=lambda: now[0])
    watch(TransferProgress("hf://a/b/config.json", 500, 500))
    for done in range(1, 31):
        now[0] += 1.0
        watch(TransferProgress("hf://a/b/model", done * MB, 30 * MB))
    lines = stream.getvalue().splitlines()
    assert lines == [
        "downloading hf://a/b/model: 11 of 30 MB, ETA 0:00:19",
        "downloading hf://a/b/model: 21 of 30 MB, ETA 0:00:09",
        "downloading hf://a/b/model: 30 of 30 MB",
    ]


def test_in_a_file_what_is_written_at_once_has_no_line_and_what_takes_long_has_some():
    now = [0.0]
    stream = io.StringIO()
    watch = Transfers(stream, clock=lambda: now[0])
    for name, seconds in (("quick", 1.0), ("slow", 20.0)):
        for done in (1, 5, 10):
            watch(TransferProgress(name, done * MB, 10 * MB, verb="writing"))
            now[0] += seconds
    assert stream.getvalue().splitlines() == ["writing slow: 5 of 10 MB, ETA 0:00:25", "writing slow: 10 of 10 MB"]


def test_on_a_terminal_there_is_a_bar_for_each_file_and_it_goes_away():
    stream = Terminal()
    watch = Transfers(stream)
    for source in ("hf://a/b/one", "hf://a/b/two"):
        watch(TransferProgress(source, 2 * MB, 4 * MB))
    assert "hf://a/b/one" in stream.getvalue() and "hf://a/b/two" in stream.getvalue()
    for source in ("hf://a/b/one", "hf://a/b/two"):
        watch(TransferProgress(source, 4 * MB, 4 * MB))
    assert watch._bars == {}


def test_a_stall_is_shown_also_for_a_small_file():
    lines, screen = io.StringIO(), Terminal()
    for stream in (lines, screen):
        watch = Transfers(stream)
        watch(TransferProgress("hf://a/b/config.json", 5, 500, "no data from the server (5 s)"))
        watch(TransferProgress("hf://a/b/config.json", 500, 500))
        assert watch._bars == {}
    assert lines.getvalue() == "waiting for hf://a/b/config.json: no data from the server (5 s)\n"
    assert "no data from the server (5 s)" in screen.getvalue()


def test_an_upload_of_several_threads_adds_up_and_ends_at_its_total():
    seen = []
    sent = UploadedBytes("s3://bucket/model/", 30 * MB, seen.append)
    for _ in range(4):  # a part that is sent again does not count twice
        sent(10 * MB)
    assert [each.done // MB for each in seen] == [10, 20, 30, 30]
    assert {(each.verb, each.total) for each in seen} == {("uploading", 30 * MB)}


def test_a_model_that_is_written_shows_how_much_of_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr("attune.files.LOOK_SECONDS", 0.001)
    seen = []
    with growing(tmp_path / "new", seen.append):
        (tmp_path / "new").mkdir()
        for number in range(3):
            (tmp_path / f"new/{number}").write_bytes(bytes(10))
            deadline = time.monotonic() + 10
            while max(seen, default=0) < 10 * (number + 1) and time.monotonic() < deadline:
                time.sleep(0.001)
    assert {10, 20, 30} <= set(seen)

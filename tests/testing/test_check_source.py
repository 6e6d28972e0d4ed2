"""The check passes what keeps its promises, and names each promise that is broken."""

import hashlib
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from attune.catalog import find
from attune.errors import SourceError
from attune.sources import SOURCES, Body, ByteRanges, Hashes, Listing, RemoteFile, RetryableError, Source, fetch
from attune.testing import CheckFailed, check_source

from servers.hub import Hub, serve_hub
from servers.s3 import KEY, SECRET, moto
from servers.web import Site, web
from toy import depot

CONTENT = bytes(range(256)) * 40


def test_the_web_keeps_them(tmp_path):
    with web(Site({"/a": CONTENT})) as url:
        check_source(find(SOURCES, "https"), f"{url}/a", CONTENT, f"{url}/none", tmp_path)


def test_the_hub_keeps_them(tmp_path, monkeypatch):
    hub = Hub()
    hub.put("org/m", {"a": CONTENT})
    with serve_hub(hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        check_source(find(SOURCES, "hf"), "hf://org/m/a", CONTENT, "hf://org/m/none", tmp_path)


def test_s3_keeps_them(tmp_path, monkeypatch):
    import boto3

    with moto() as url:
        for name, value in {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "ENDPOINT_URL": url}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="speech")
        client.put_object(Bucket="speech", Key="a", Body=CONTENT)
        check_source(find(SOURCES, "s3"), "s3://speech/a", CONTENT, "s3://speech/none", tmp_path)


def test_a_source_of_ones_own_keeps_them_by_using_the_fetcher(tmp_path):
    failures = [RetryableError("busy")]

    @contextmanager
    def open_from(start, version):
        if failures:
            raise failures.pop()
        yield Body(iter([CONTENT[start:]]), start, len(CONTENT), "v1")

    def find_it(address, cache):
        def list_files(known, locked):
            if address != "memory://a":
                raise SourceError(f"There is no {address}.")
            digest = hashlib.sha256(CONTENT).hexdigest()
            return Listing({"a": RemoteFile(open_from, len(CONTENT), "v1", Hashes(sha256=digest))})

        return fetch(address, list_files, cache)

    check_source(Source(find_it), "memory://a", CONTENT, "memory://none", tmp_path)
    assert failures == []


def test_a_source_of_another_package_keeps_them_also_by_range(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT)
    address = f"toy.depot://{tmp_path}/a"
    check_source(depot.SOURCE, address, CONTENT, f"toy.depot://{tmp_path}/none", tmp_path / "scratch")


def test_ranges_that_are_wrong_are_named(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT)
    address, missing = f"toy.depot://{tmp_path}/a", f"toy.depot://{tmp_path}/none"

    def failures(ranges):
        with pytest.raises(CheckFailed) as failed:
            check_source(Source(depot.find, ranges=ranges), address, CONTENT, missing, tmp_path / "scratch")
        return str(failed.value)

    found = failures(ByteRanges(lambda *_: b"no", lambda _: 7, lambda _: []))
    for promise in ("the size is 7", "4 pieces", "bytes after the end", "lack it", "size of", "read of"):
        assert promise in found
    assert "raises FileNotFoundError, expected SourceError" in failures(
        ByteRanges(depot.read_range, lambda address: Path(address.removeprefix(depot.SCHEME)).stat().st_size)
    )


def broken(find_it):
    return Source(find_it)


def test_every_promise_that_a_source_breaks_is_reported(tmp_path):
    (tmp_path / "there").write_bytes(CONTENT)
    numbers = iter(range(100))

    def careless(address, cache):
        path = cache.folder / f"copy-{next(numbers)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "there", path)
        return path

    with pytest.raises(CheckFailed) as failed:
        check_source(broken(careless), "x://a", CONTENT, "x://none", tmp_path / "scratch")
    for promise in ("return 4 paths", "lock:", "never fetched", "x://none is found", "left behind"):
        assert promise in str(failed.value)


def test_wrong_bytes_and_other_errors_are_reported(tmp_path):
    def wrong(address, cache):
        if address == "x://none":
            raise KeyError("none")
        if cache.is_offline:
            raise SourceError("nothing")
        path = tmp_path / "wrong"
        path.write_bytes(b"wrong")
        return path

    with pytest.raises(
        CheckFailed, match="expected content(.|\n)*offline: what was fetched is not found(.|\n)*KeyError"
    ):
        check_source(broken(wrong), "x://a", CONTENT, "x://none", tmp_path / "scratch")

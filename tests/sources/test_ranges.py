import base64
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from attune.errors import DataError, SourceError
from attune.sources import _http, _ranges, content_of, is_address, list_prefix, read_range, size_of
from attune.types import Utterance

from range_server import Behavior, serving
from servers.s3 import Between, moto, proxy
from servers.web import Fault

CONTENT = os.urandom(300_000)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """The real waits, a hundred times shorter."""
    quick = replace(_ranges.RANGE_READS, first_wait=0.0025, longest_wait=0.08)
    monkeypatch.setattr(_ranges, "RANGE_READS", quick)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    return tmp_path


@pytest.fixture
def behavior():
    return Behavior()


@pytest.fixture
def url(folder, behavior):
    with serving(folder, behavior) as address:
        yield address


def test_a_path_and_a_file_address_are_read_in_the_middle(folder):
    path = folder / "a.bin"
    assert read_range(str(path), 1000, 50) == read_range(path.as_uri(), 1000, 50) == CONTENT[1000:1050]
    assert size_of(str(path)) == len(CONTENT)
    assert not is_address(str(path)) and is_address("s3://b/k")


def test_a_web_address_is_asked_for_the_wanted_bytes_alone(url, behavior):
    assert read_range(f"{url}/a.bin", 7, 100_000) == CONTENT[7:100_007]
    assert behavior.sent == 100_000


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_the_size_is_found_by_reading_for_which_alone_an_address_may_be_signed(url, folder, behavior, ignores_ranges):
    (folder / "empty.bin").touch()
    behavior.ignores_ranges = ignores_ranges
    assert size_of(f"{url}/a.bin?X-Amz-Signature=for-get") == len(CONTENT)
    assert size_of(f"{url}/empty.bin") == 0


def test_the_size_is_found_over_a_line_that_drops_and_refuses(url, behavior):
    behavior.drops = behavior.refusals = 2
    assert size_of(f"{url}/a.bin") == len(CONTENT)


def test_letters_and_spaces_in_an_address_are_sent_as_browsers_do(url, folder):
    (folder / "für dich.bin").write_bytes(CONTENT)
    assert read_range(f"{url}/für dich.bin", 3, 5) == CONTENT[3:8]
    assert size_of(f"{url}/für dich.bin") == len(CONTENT)


def test_a_password_in_an_address_is_refused_without_repeating_it():
    with pytest.raises(SourceError, match=r"~/.netrc: machine host login USER") as refused:
        size_of("https://me:5ecret@host/a.tar")
    assert "5ecret" not in str(refused.value)


def test_netrc_opens_its_host(url, behavior, tmp_path, monkeypatch):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password 5ecret\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    read_range(f"{url}/a.bin", 0, 10)
    assert behavior.requests[0][2] == "Basic " + base64.b64encode(b"me:5ecret").decode()


def test_off_the_network_nothing_is_asked(url, behavior, monkeypatch):
    monkeypatch.setenv("ATTUNE_OFFLINE", "1")
    with pytest.raises(SourceError, match="needs the network, and --offline"):
        read_range(f"{url}/a.bin", 7, 10)
    assert not behavior.requests


def test_a_dropped_connection_goes_on_where_it_ended(url, behavior):
    behavior.drops = 3
    assert read_range(f"{url}/a.bin", 0, 200_000) == CONTENT[:200_000]
    starts = [int(asked.removeprefix("bytes=").split("-")[0]) for _, asked, _ in behavior.requests]
    assert starts == [0, 100_000, 150_000, 175_000]
    assert behavior.sent == 200_000  # nothing came twice


def test_a_503_is_retried_and_at_last_reported(url, behavior):
    behavior.refusals = 2
    assert read_range(f"{url}/a.bin", 0, 10) == CONTENT[:10]
    behavior.refusals = 100
    with pytest.raises(SourceError, match=r"the server answered 503 .* \(7 attempts in a row\)"):
        read_range(f"{url}/a.bin", 0, 10)


def test_connections_are_used_again(url, behavior):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda start: read_range(f"{url}/a.bin", start, 10), range(0, 1000, 10)))
    assert b"".join(found) == CONTENT[:1000]
    kept = [idle for (process, route), idle in _http._idle.items() if route.host in url and process == os.getpid()]
    assert 1 <= sum(map(len, kept)) <= 4


@pytest.mark.parametrize(
    ("path", "start", "what"),
    [
        ("none.bin", 0, "the server answered 404"),
        ("a.bin", 400_000, "ends before byte 400010"),
        ("a.bin", 299_995, "ends before byte 300005"),
    ],
)
def test_what_is_not_there_is_refused_at_once(url, behavior, path, start, what):
    with pytest.raises(SourceError, match=what):
        read_range(f"{url}/{path}", start, 10)
    assert len(behavior.requests) == 1


def test_a_server_without_ranges_is_refused(url, behavior):
    behavior.ignores_ranges = True
    with pytest.raises(SourceError, match="does not support byte ranges"):
        read_range(f"{url}/a.bin", 5, 10)


def test_a_token_is_not_carried_to_another_host(url, behavior, folder, monkeypatch):
    path = folder / "datasets/org/name/resolve/v1/data/a.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    hub = Behavior(redirect_to=url)
    with serving(folder, hub) as endpoint:
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert read_range("hf://datasets/org/name@v1/data/a.bin", 3, 4) == CONTENT[3:7]
        assert size_of("hf://datasets/org/name@v1/data/a.bin") == len(CONTENT)
    assert [token for _, _, token in hub.requests] == ["Bearer hf_secret"] * 2
    assert [token for _, _, token in behavior.requests] == [None] * 2


def test_a_hub_address_without_a_file_is_refused():
    with pytest.raises(SourceError, match="names no file"):
        read_range("hf://datasets/org/name", 0, 1)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://host/a", r"Unknown scheme 'ftp' in ftp://host/a"),
        ("toy.nothing://host/a", r"toy.nothing://host/a: No module 'toy.nothing'"),
        ("attune://demo/train.jsonl", "cannot be read by byte range: its source has no `ranges`"),
    ],
)
def test_a_source_without_ranges_is_refused(address, message):
    with pytest.raises(SourceError, match=message):
        read_range(address, 0, 1)


def test_a_source_of_another_package_serves_ranges_and_only_the_rest_is_read_again(folder, monkeypatch):
    address = f"toy.depot://{folder}/a.bin"
    assert size_of(address) == len(CONTENT)
    assert [read_range(address, start, 1000) for start in range(5)] == [CONTENT[at : at + 1000] for at in range(5)]
    assert list_prefix(f"toy.depot://{folder}/") == [address]
    with pytest.raises(SourceError, match="ends before byte 300005"):
        read_range(address, 299_995, 10)
    monkeypatch.setenv("ATTUNE_OFFLINE", "1")
    with pytest.raises(SourceError, match="needs the network, and --offline"):
        read_range(address, 0, 10)


def test_a_recording_that_cannot_be_had_is_a_fault_of_its_row(url):
    utterance = Utterance("u", 1.0, f"{url}/none.tar", first_byte=0, byte_count=10)
    with pytest.raises(DataError, match="404"):
        content_of(utterance)
    assert content_of(Utterance("u", 1.0, f"{url}/a.bin")) == CONTENT


@pytest.fixture
def between():
    return Between()


@pytest.fixture
def bucket(monkeypatch, between):
    """A real S3 server on loopback, with a few objects in it."""
    boto3 = pytest.importorskip("boto3")
    with moto() as server, proxy(server, between) as url:
        settings = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        for name, value in {**settings, "AWS_DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="speech")
        for key in ("train/001.tar", "train/000.tar", "other.tar"):
            client.put_object(Bucket="speech", Key=key, Body=CONTENT)
        yield "s3://speech"


def test_s3_objects_are_listed_measured_and_read_in_the_middle(bucket):
    assert list_prefix(f"{bucket}/train/") == [f"{bucket}/train/000.tar", f"{bucket}/train/001.tar"]
    assert size_of(f"{bucket}/other.tar") == len(CONTENT)
    assert read_range(f"{bucket}/other.tar", 1000, 100) == CONTENT[1000:1100]
    for call in (size_of, lambda address: read_range(address, 0, 10)):
        with pytest.raises(SourceError, match=r"s3://speech/none.tar: .*no such key"):
            call(f"{bucket}/none.tar")
    for start in (400_000, len(CONTENT) - 5):
        with pytest.raises(SourceError, match="ends before byte"):
            read_range(f"{bucket}/other.tar", start, 10)


def test_s3_ranges_go_on_where_a_connection_broke_off(bucket, between):
    boto3 = pytest.importorskip("boto3")
    large = os.urandom(1_500_000)
    boto3.client("s3").put_object(Bucket="speech", Key="large.tar", Body=large)
    between.asked.clear()
    between.faults = [Fault(503), Fault(end_after=800_000), Fault()]
    assert read_range(f"{bucket}/large.tar", 10, 1_400_000) == large[10:1_400_010]
    assert between.asked == ["GET /speech/large.tar"] * 3


def test_s3_credentials_that_are_set_later_are_used(bucket, monkeypatch):
    read_range(f"{bucket}/other.tar", 0, 10)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match="Could not connect"):
        read_range(f"{bucket}/other.tar", 0, 10)

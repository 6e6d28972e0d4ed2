import base64
import os
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from attune.errors import DataError, SourceError
from attune.sources import _ranges, content_of, is_address, list_prefix, read_range, size_of
from attune.types import Utterance

from range_server import Behavior, serving
from servers.s3 import moto

CONTENT = os.urandom(300_000)


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """The real waits, a hundred times shorter."""
    monkeypatch.setattr(_ranges, "WAITS", tuple(wait / 100 for wait in _ranges.WAITS))


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
    with pytest.raises(SourceError, match="forbids the network"):
        read_range(f"{url}/a.bin", 7, 10)
    assert not behavior.requests


def test_a_dropped_connection_goes_on_where_it_ended(url, behavior):
    behavior.drops = 3
    assert read_range(f"{url}/a.bin", 0, 200_000) == CONTENT[:200_000]
    starts = [int(asked.removeprefix("bytes=").split("-")[0]) for _, asked, _ in behavior.requests]
    assert starts == [0, 100_000, 150_000, 175_000]
    assert behavior.sent == 200_000  # nothing came twice


def test_an_answer_of_503_is_asked_again_and_at_last_told(url, behavior):
    behavior.refusals = 2
    assert read_range(f"{url}/a.bin", 0, 10) == CONTENT[:10]
    behavior.refusals = 100
    with pytest.raises(SourceError, match=r"the server answered 503 .*, 7 times"):
        read_range(f"{url}/a.bin", 0, 10)


def test_connections_are_used_again(url, behavior):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda start: read_range(f"{url}/a.bin", start, 10), range(0, 1000, 10)))
    assert b"".join(found) == CONTENT[:1000]
    kept = [idle for (process, _, host), idle in _ranges._idle.items() if host in url and process == os.getpid()]
    assert 1 <= sum(map(len, kept)) <= 4


@pytest.mark.parametrize(
    ("path", "start", "what"),
    [
        ("none.bin", 0, "the server answered 404"),
        ("a.bin", 400_000, "ends before byte 400010"),
        ("a.bin", 299_995, "ends before byte 300005"),
    ],
)
def test_what_is_not_there_is_told_at_once(url, behavior, path, start, what):
    with pytest.raises(SourceError, match=what):
        read_range(f"{url}/{path}", start, 10)
    assert len(behavior.requests) == 1


def test_a_server_without_ranges_is_told(url, behavior):
    behavior.ignores_ranges = True
    with pytest.raises(SourceError, match="does not serve byte ranges"):
        read_range(f"{url}/a.bin", 5, 10)


def test_a_token_is_not_carried_to_another_host(url, behavior, folder, monkeypatch):
    first = Behavior(redirect_to=url)
    with serving(folder, first) as hub:
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        monkeypatch.setattr("huggingface_hub.hf_hub_url", lambda **parts: f"{hub}/{parts['filename']}")
        assert read_range("hf://datasets/org/name/a.bin", 3, 4) == CONTENT[3:7]
    assert first.requests[0][2] == "Bearer hf_secret"
    assert [token for _, _, token in behavior.requests] == [None]


def test_a_redirect_to_where_all_can_listen_is_not_followed():
    safe, open_to_all = urlsplit("https://host/a"), urlsplit("http://host/a")
    token = {"Authorization": "Bearer hf_secret"}
    with pytest.raises(SourceError, match="https://host/a leads on to http://host/a, which is not safe to follow"):
        _ranges._headers_after(safe, open_to_all, token)
    assert _ranges._headers_after(open_to_all, safe, token) == {}
    assert _ranges._headers_after(safe, safe, token) == token


def test_a_hub_file_is_named_by_its_parts():
    assert _ranges._hub_file("hf://datasets/org/name@v1/data/a.parquet") == {
        "repo_id": "org/name",
        "filename": "data/a.parquet",
        "repo_type": "dataset",
        "revision": "v1",
    }
    with pytest.raises(SourceError, match="names no file"):
        _ranges._hub_file("hf://datasets/org/name")


def test_an_unknown_scheme_is_refused():
    with pytest.raises(SourceError, match="cannot be read by byte range"):
        read_range("ftp://host/a", 0, 1)


def test_a_recording_that_cannot_be_had_is_a_fault_of_its_row(url):
    utterance = Utterance("u", 1.0, f"{url}/none.tar", first_byte=0, byte_count=10)
    with pytest.raises(DataError, match="404"):
        content_of(utterance)
    assert content_of(Utterance("u", 1.0, f"{url}/a.bin")) == CONTENT


@pytest.fixture
def bucket(monkeypatch):
    """A real S3 server on loopback, with a few objects in it."""
    boto3 = pytest.importorskip("boto3")
    with moto() as url:
        settings = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        for name, value in {**settings, "AWS_DEFAULT_REGION": "us-east-1"}.items():
            monkeypatch.setenv(name, value)
        _ranges._s3_of.cache_clear()
        client = boto3.client("s3")
        client.create_bucket(Bucket="speech")
        for key in ("train/001.tar", "train/000.tar", "other.tar"):
            client.put_object(Bucket="speech", Key=key, Body=CONTENT)
        yield "s3://speech"
    _ranges._s3_of.cache_clear()


def test_s3_objects_are_listed_measured_and_read_in_the_middle(bucket):
    assert list_prefix(f"{bucket}/train/") == [f"{bucket}/train/000.tar", f"{bucket}/train/001.tar"]
    assert size_of(f"{bucket}/other.tar") == len(CONTENT)
    assert read_range(f"{bucket}/other.tar", 1000, 100) == CONTENT[1000:1100]
    with pytest.raises(SourceError, match=r"S3 answered 404"):
        read_range(f"{bucket}/none.tar", 0, 10)
    with pytest.raises(SourceError, match=r"S3 answered 416|ends before byte"):
        read_range(f"{bucket}/other.tar", 400_000, 10)

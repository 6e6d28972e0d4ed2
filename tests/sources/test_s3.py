"""Against moto (conditional puts) and rclone (real signatures, real disk), both on this machine."""

import hashlib
import json
import socket
from dataclasses import replace
from itertools import count

import pytest

from attune.errors import SourceError
from attune.sources import Cache, RetryableError, RetryPolicy, locate, push
from attune.sources import _fetch as fetching
from attune.sources import s3 as bucket_source

from servers.s3 import KEY, SECRET, Between, moto, proxy, rclone
from servers.web import Fault, Quiet, serving

pytestmark = pytest.mark.recipe

QUICK = RetryPolicy(timeout=3.0, tries=3, first_wait=0.01, longest_wait=0.02)
WEIGHTS = bytes(range(256)) * 5000


@pytest.fixture(scope="module")
def moto_url():
    with moto() as url:
        yield url


@pytest.fixture
def between():
    return Between()


@pytest.fixture
def s3(moto_url, between, monkeypatch):
    """A client of an empty bucket, as the environment describes it; attune goes through a proxy."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    settings = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    import boto3

    client = boto3.client("s3", endpoint_url=moto_url)
    for bucket in client.list_buckets()["Buckets"]:
        for each in client.list_objects_v2(Bucket=bucket["Name"]).get("Contents", ()):
            client.delete_object(Bucket=bucket["Name"], Key=each["Key"])
    client.create_bucket(Bucket="speech")
    with proxy(moto_url, between) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield client


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache", retry=QUICK)


def put(client, **objects: bytes) -> None:
    for key, body in objects.items():
        client.put_object(Bucket="speech", Key=key.replace("__", "/").replace("_", "."), Body=body)


def names_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_two_keys_with_the_same_last_part_are_two_files(s3, cache):
    put(s3, small__model_bin=b"small", large__model_bin=b"large")
    small, large = (locate(f"s3://speech/{size}/model.bin", cache) for size in ("small", "large"))
    assert (small.name, large.name) == ("model.bin", "model.bin")
    assert (small.read_bytes(), large.read_bytes()) == (b"small", b"large")


def test_a_prefix_is_a_folder_with_or_without_its_slash(s3, cache):
    put(s3, models__tiny__config_json=b"{}", models__tiny__task__words_txt=b"a", models__tinier=b"no")
    for address in ("s3://speech/models/tiny/", "s3://speech/models/tiny"):
        folder = locate(address, cache)
        assert (folder.name, names_in(folder)) == ("tiny", ["config.json", "task/words.txt"])


def test_an_unchanged_folder_costs_a_list_and_a_changed_file_one_download(s3, cache, between, monkeypatch):
    monkeypatch.setattr(fetching, "FRESH_SECONDS", 0.0)
    put(s3, m__a=b"1", m__b=b"2")
    locate("s3://speech/m/", cache)
    put(s3, m__b=b"new")
    between.asked.clear()
    assert (locate("s3://speech/m/", cache) / "b").read_bytes() == b"new"
    assert [line for line in between.asked if "list-type" not in line] == ["GET /speech/m/b"]
    between.asked.clear()
    locate("s3://speech/m/", cache)
    assert len(between.asked) == 1


def test_damage_of_the_same_size_is_found_and_mended_or_named(s3, cache, between):
    put(s3, model_bin=WEIGHTS)
    between.faults = [Fault(corrupt=True)]
    assert locate("s3://speech/model.bin", cache).read_bytes() == WEIGHTS
    put(s3, other_bin=WEIGHTS + b"!")
    between.faults = [Fault(corrupt=True)] * 3
    before, md5 = files_in(cache.folder), hashlib.md5(WEIGHTS + b"!").hexdigest()
    with pytest.raises(SourceError, match=rf"s3://speech/other.bin arrived corrupted 3 times: expected md5 {md5}, got"):
        locate("s3://speech/other.bin", cache)
    assert files_in(cache.folder) == before


def test_an_upload_in_parts_is_verified_too(s3, cache, between):
    from boto3.s3.transfer import TransferConfig

    body = WEIGHTS * 10
    (cache.folder.parent / "large").write_bytes(body)
    parts = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    s3.upload_file(str(cache.folder.parent / "large"), "speech", "large.bin", Config=parts)
    assert "-3" in s3.head_object(Bucket="speech", Key="large.bin")["ETag"]
    between.faults = [Fault(corrupt=True)]
    assert locate("s3://speech/large.bin", cache).read_bytes() == body
    assert len([line for line in between.asked if line.startswith("GET")]) == 2


def test_a_checksum_of_the_upload_is_believed_first(s3, cache, between):
    s3.put_object(Bucket="speech", Key="a.bin", Body=WEIGHTS, ChecksumAlgorithm="SHA256")
    between.faults = [Fault(corrupt=True)] * 3
    with pytest.raises(SourceError, match=f"expected sha256 {hashlib.sha256(WEIGHTS).hexdigest()}"):
        locate("s3://speech/a.bin", cache)


def test_a_server_that_refuses_and_truncates_is_asked_for_the_rest(s3, cache, between):
    put(s3, model_bin=WEIGHTS)
    between.faults = [Fault(503), Fault(end_after=600_000)]
    assert locate("s3://speech/model.bin", cache).read_bytes() == WEIGHTS


def test_a_version_that_was_locked_is_fetched_though_there_is_a_newer_one(s3, cache, tmp_path):
    s3.put_bucket_versioning(Bucket="speech", VersioningConfiguration={"Status": "Enabled"})
    put(s3, model_bin=b"then")
    locate("s3://speech/model.bin", cache)
    put(s3, model_bin=b"now!")
    elsewhere = replace(cache, folder=tmp_path / "new").locked_to(dict(cache.used))
    assert locate("s3://speech/model.bin", elsewhere).read_bytes() == b"then"
    assert locate("s3://speech/model.bin", replace(cache, folder=tmp_path / "newer")).read_bytes() == b"now!"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://speech/none.bin", "no such key in the bucket speech. Check it; keys are case-sensitive"),
        ("s3://speech/none/", "no such key in the bucket speech"),
        ("s3://no-such-bucket/a", "no such bucket. Check its name and AWS_ENDPOINT_URL"),
        ("s3://speech", "not an S3 address. Expected s3://BUCKET/KEY"),
    ],
)
def test_what_is_not_there_is_an_error_and_leaves_nothing(s3, cache, address, message):
    with pytest.raises(SourceError, match=message):
        locate(address, cache)
    assert files_in(cache.folder) == []


def test_a_key_that_would_lie_outside_its_folder_is_refused(s3, cache):
    s3.put_object(Bucket="speech", Key="m/../../evil", Body=b"1")
    with pytest.raises(SourceError, match="outside its folder"):
        locate("s3://speech/m/", cache)
    assert files_in(cache.folder) == []


def test_a_push_appears_whole_and_comes_back_byte_by_byte(s3, cache, tmp_path):
    folder = tmp_path / "model"
    (folder / "task").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "task/words.txt").write_bytes(b"a")
    assert push(folder, "s3://speech/models/mine", "first") == "s3://speech/models/mine/"
    pulled = locate("s3://speech/models/mine/", cache)
    assert names_in(pulled) == names_in(folder)
    assert (pulled / "model.safetensors").read_bytes() == WEIGHTS
    with pytest.raises(SourceError, match="is not empty: it has attune-files.json"):
        push(folder, "s3://speech/models/mine", "again")


def test_readers_of_a_push_go_by_its_list(s3, cache, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("a.json", "b.json"):
        (folder / name).write_bytes(b"{}")
    push(folder, "s3://speech/m", "")
    put(s3, m__stray_json=b"{}")
    assert names_in(locate("s3://speech/m/", cache)) == ["a.json", "b.json"]
    s3.delete_object(Bucket="speech", Key="m/a.json")
    with pytest.raises(SourceError, match=r"s3://speech/m/ names a.json, but the bucket speech has no m/a.json"):
        locate("s3://speech/m/", Cache(tmp_path / "other", retry=QUICK))


def test_a_list_of_a_push_cannot_pass_off_a_file_of_this_machine_as_fetched(s3, cache, tmp_path):
    own = tmp_path / "diary.txt"
    own.write_text("mine")
    listing = json.dumps({"files": {"a.json": {"sha256": f"..{own}"}}})
    s3.put_object(Bucket="speech", Key="m/a.json", Body=b"else")
    s3.put_object(Bucket="speech", Key="m/attune-files.json", Body=listing.encode())
    with pytest.raises(SourceError, match=r"attune-files.json is damaged"):
        locate("s3://speech/m/", cache)


def test_an_upload_that_is_refused_is_reported(tmp_path, s3, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/a.json").write_bytes(b"{}")

    class NoUploads(Quiet):
        def do_PUT(self):
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            is_upload = not self.headers["If-None-Match"]
            self.say(403 if is_upload else 200, b"<Error><Code>AccessDenied</Code></Error>" if is_upload else b"")

        def do_GET(self):
            self.say(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")

        def say(self, status, content):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with serving(NoUploads) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(SourceError, match=r"s3://speech/m/: access denied \(AccessDenied\). Check AWS_ACCESS"):
            push(tmp_path / "model", "s3://speech/m/", "")


def test_a_time_in_a_key_is_no_drive(s3, cache):
    s3.put_object(Bucket="speech", Key="m/12:30.wav", Body=b"1")
    assert names_in(locate("s3://speech/m/", cache)) == ["12:30.wav"]


def test_a_push_that_was_cut_off_is_not_taken_for_a_model_and_can_be_completed(s3, cache, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.json").write_bytes(b"{}")
    push(folder, "s3://speech/m", "")
    listing = s3.get_object(Bucket="speech", Key="m/attune-files.json")["Body"].read()
    s3.delete_object(Bucket="speech", Key="m/attune-files.json")
    s3.put_object(Bucket="speech", Key="m/attune-begun.json", Body=listing)
    with pytest.raises(SourceError, match="an unfinished push. Push again"):
        locate("s3://speech/m/", cache)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.json").write_bytes(b"other")
    with pytest.raises(SourceError, match="an unfinished push of other files"):
        push(other, "s3://speech/m", "")
    push(folder, "s3://speech/m", "")
    assert names_in(locate("s3://speech/m/", cache)) == ["a.json"]


def test_only_one_of_two_pushes_is_completed(s3, tmp_path):
    """The list is put only where there is none: moto knows conditional puts."""
    from attune.sources._s3_push import FILES, push_folder

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.json").write_bytes(b"{}")

    class Rival:
        def __getattr__(self, name):
            if name == "upload_file":
                s3.put_object(Bucket="speech", Key=f"m/{FILES}", Body=json.dumps({"files": {}}))
            return getattr(s3, name)

    with pytest.raises(SourceError, match="another push finished first"):
        push_folder(folder, Rival(), "speech", "m/", "s3://speech/m/")


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """rclone's server and the folder that is its bucket."""
    bucket = tmp_path / "buckets" / "speech"
    bucket.mkdir(parents=True)
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    with rclone(tmp_path / "buckets") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield bucket


def test_files_on_a_real_disk_come_with_real_signatures(disk, cache, tmp_path):
    (disk / "models").mkdir()
    (disk / "models/a.bin").write_bytes(WEIGHTS)
    (disk / "models/b.bin").write_bytes(b"two")
    assert locate("s3://speech/models/a.bin", cache).read_bytes() == WEIGHTS
    assert names_in(locate("s3://speech/models/", cache)) == ["a.bin", "b.bin"]
    pushed = tmp_path / "model"
    pushed.mkdir()
    (pushed / "model.safetensors").write_bytes(WEIGHTS)
    push(pushed, "s3://speech/mine/", "")
    assert (disk / "mine/model.safetensors").read_bytes() == WEIGHTS
    assert names_in(locate("s3://speech/mine/", cache)) == ["model.safetensors"]


def test_credentials_that_are_wrong_are_named_and_never_repeated(disk, cache, monkeypatch):
    (disk / "a.bin").write_bytes(b"1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-5ecret")
    with pytest.raises(SourceError, match=r"s3://speech/a.bin: .*Check AWS_ACCESS_KEY_ID") as wrong_secret:
        locate("s3://speech/a.bin", cache)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(SourceError, match=r"Check AWS_ACCESS_KEY_ID") as wrong_key:
        locate("s3://speech/a.bin", cache)
    assert "5ecret" not in f"{wrong_secret.value}{wrong_key.value}"
    assert files_in(cache.folder) == []


def test_expired_credentials_are_called_so(s3, cache, moto_url, monkeypatch):
    class Expired(Quiet):
        def do_GET(self):
            body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

    with serving(Expired) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(SourceError, match="the credentials have expired. Get new ones"):
            locate("s3://speech/a.bin", cache)
    assert files_in(cache.folder) == []


def test_a_server_that_does_not_answer_is_asked_again_and_no_key_is_blamed(s3, cache, monkeypatch):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(SourceError, match=r"Could not connect.* \(3 attempts in a row\). Check the URL") as failure:
            locate("s3://speech/a.bin", cache)
        with pytest.raises(SourceError, match="Check the network and AWS_ENDPOINT_URL") as of_push:
            push(cache.folder, "s3://speech/mine/", "")
    assert "AWS_ACCESS_KEY_ID" not in f"{failure.value}{of_push.value}"


def test_without_boto3_the_error_names_what_to_install(cache, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(
        SourceError, match=r"s3:// needs boto3, which is not installed. Run: pip install 'attune-speech\[s3\]'"
    ):
        locate("s3://speech/a.bin", cache)


@pytest.mark.parametrize(
    ("status", "range_sent", "start"),
    [(204, None, 0), (206, "bytes 0-4/9", 0), (206, None, 5), (206, "bytes", 5), (206, "bytes x-9/10", 5)],
)
def test_an_answer_that_is_no_object_or_no_part_of_one_is_asked_for_again(status, range_sent, start):
    answer = {"ResponseMetadata": {"HTTPStatusCode": status}, **({"ContentRange": range_sent} if range_sent else {})}
    with pytest.raises(RetryableError):
        bucket_source._begin(answer, start)


def test_a_listing_without_end_is_left(monkeypatch):
    class Endless:
        def get_paginator(self, name):
            return self

        def paginate(self, **_):
            return ({"Contents": [{"Key": str(page), "ETag": "1", "Size": 1}]} for page in count())

    monkeypatch.setattr(bucket_source, "MOST_PAGES", 20)
    with pytest.raises(SourceError, match="more than 20 objects. Choose a longer prefix"):
        bucket_source._list(bucket_source._Place("s3://b/", "b", "", Endless()), "")

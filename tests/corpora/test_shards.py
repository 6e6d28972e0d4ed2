"""Tar shards: bad samples, patterns that mean nothing, and addresses that must not be written down."""

import json
import tarfile

import pytest

from attune.corpora import CorpusPaths, Skipped, expand_shards, read_shard
from attune.corpora._detect import detect_corpus
from attune.corpora.shards import CORPUS
from attune.errors import DataError
from attune.sources import RetryPolicy, content_of
from attune.types import Utterance

import miniatures


@pytest.mark.parametrize(
    ("name", "note", "reason"),
    [
        ("b.txt", "café".encode("latin-1"), "its .txt is not UTF-8 text"),
        ("b.lab", b"\xff\xfeh\x00i\x00", "its .lab is not UTF-8 text"),
        ("b.json", '{"text": "café"}'.encode("latin-1"), "its .json is not JSON"),
        ("b.json", b"[" * 100_000, "its .json is not JSON"),
    ],
)
def test_a_note_that_is_not_utf8_costs_its_sample_alone(tmp_path, name, note, reason):
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for key in "abc":
            miniatures.put(archive, f"{key}.flac", miniatures.encoded())
            own, content = (name, note) if key == "b" else (f"{key}.txt", b"fine")
            miniatures.put(archive, own, content)
    first, second, third = [sample.found for sample in read_shard(str(tmp_path / "s.tar"))]
    assert isinstance(second, Skipped) and second.which.endswith("s.tar: b") and second.reason.startswith(reason)
    assert (first.id, third.id) == ("a", "c")


def tarred(folder, names, lines):
    """A bucket as NeMo tars it: recordings alone, and a manifest beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "audio_0.tar", "w") as archive:
        for name in names:
            miniatures.put(archive, name, miniatures.encoded())
    (folder / "tarred_audio_manifest.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(folder / "audio_0.tar")


def test_recordings_that_nemo_tarred_have_the_lines_of_the_manifest_beside_them(tmp_path):
    lines = [
        {
            "audio_filepath": "data_a-sub1.wav",
            "duration": 0.5,
            "offset": 0.25,
            "text": "one",
            "lang": "en",
            "shard_id": 0,
        },
        {"audio_filepath": "data_b.flac", "duration": 1, "text": "two", "shard_id": 0},
        {"audio_filepath": "data_d.flac", "duration": 0.4, "text": "half", "offset": 0, "shard_id": 0},
        {"audio_filepath": "data_d.flac", "duration": 0.4, "text": "other half", "offset": 0.4, "shard_id": 0},
    ]
    shard = tarred(tmp_path, ["data_a-sub1.flac", "data_b.flac", "data_c.flac", "data_d.flac"], lines)
    first, second, third, fourth = [sample.found for sample in read_shard(shard)]
    assert (first.id, first.text, first.start, first.seconds) == ("data_a-sub1", "one", 0.25, 0.5)
    assert (first.labels, first.audio) == ({"lang": "en"}, shard)
    assert (second.id, second.text, second.seconds) == ("data_b", "two", 1.0)
    assert isinstance(third, Skipped) and third.reason == "not in tarred_audio_manifest.json"
    assert isinstance(fourth, Skipped) and fourth.reason.startswith("several lines of tarred_audio_manifest.json")


def test_nemos_buckets_are_named_as_in_nemo_and_recognized_as_shards(tmp_path):
    for bucket in (1, 2):
        line = {"audio_filepath": "a.flac", "duration": 1.0, "text": f"bucket {bucket}"}
        shard = tarred(tmp_path / f"bucket{bucket}", ["a.flac"], [line])
    shards = expand_shards([str(tmp_path / "bucket_OP_1..2_CL_" / "audio__OP_0..0_CL_.tar")])
    assert [next(read_shard(each)).found.text for each in shards] == ["bucket 1", "bucket 2"] and shards[1] == shard
    assert detect_corpus(tmp_path / "bucket1") == "shards"


def test_a_manifest_of_tarred_recordings_that_is_damaged_is_named_by_its_line(tmp_path):
    shard = tarred(tmp_path, ["a.flac"], [{"audio_filepath": "a.flac", "duration": 1.0, "text": "one"}])
    with (tmp_path / "tarred_audio_manifest.json").open("a") as file:
        file.write('\n{"text": "no name"}\n')
    with pytest.raises(DataError, match=r"tarred_audio_manifest\.json:3 is not a JSON object with \"audio_filepath\""):
        next(read_shard(shard))


def test_shards_of_a_source_from_another_package_are_listed_and_read_from_any_sample_on(tmp_path, monkeypatch):
    monkeypatch.setattr("attune.sources._ranges.RANGE_READS", RetryPolicy(first_wait=0.001))
    for name in ("1.tar", "0.tar"):
        with tarfile.open(tmp_path / name, "w") as archive:
            for key in "ab":
                miniatures.put(archive, f"{key}.flac", miniatures.encoded())
                miniatures.put(archive, f"{key}.txt", f"{name} {key}".encode())
    shards = expand_shards([f"toy.depot://{tmp_path}/"])
    assert shards == (f"toy.depot://{tmp_path}/0.tar", f"toy.depot://{tmp_path}/1.tar")
    first, second = read_shard(shards[1])
    assert (first.found.text, second.found.text) == ("1.tar a", "1.tar b")
    assert [sample.found.text for sample in read_shard(shards[1], first.end)] == ["1.tar b"]
    recording = Utterance(
        "u", 1.0, first.found.audio, "", first_byte=first.found.first_byte, byte_count=first.found.byte_count
    )
    assert content_of(recording) == first.content != b""


@pytest.mark.parametrize("source", ["x-{5..1}.tar", "a-{00..02}-{9..3}.tar", "s3://bucket/x-{5..1}.tar"])
def test_a_range_of_shards_that_runs_backward_is_refused(tmp_path, source):
    with pytest.raises(DataError, match=r"\{\d\.\.\d\} .* runs backward. Put the smaller number first"):
        expand_shards([source])


@pytest.mark.parametrize(
    "address",
    [
        "https://bucket.example/x-{0..3}.tar?X-Amz-Expires=600&X-Amz-Signature=SECRET",
        "https://me:SECRET@bucket.example/x.tar",
        "http://bucket.example/x.tar?part=a/b&sig=SECRET",
        "http://bucket.example/x.tar?opens=SECRET",
        "s3://KEY:SECRET@bucket.example/x.tar",
    ],
)
def test_an_address_with_a_secret_is_not_written_into_a_manifest(tmp_path, address):
    with pytest.raises(DataError, match=r"bucket\.example/x.*would be written into every row") as refused:
        CORPUS.read(CorpusPaths(address, tmp_path), CORPUS.options())
    assert "SECRET" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "source",
    [
        "https://bucket.example/x.tar",
        "HTTPS://bucket.example/a%20b.tar?path=a/b c&raw",
        "s3://bucket/sig=1/",
        "/data/key=1&sig=2.tar",
        "https://[bad",
    ],
)
def test_other_addresses_and_paths_may_be_written(tmp_path, source):
    assert list(CORPUS.read(CorpusPaths(source, tmp_path), CORPUS.options())) == ["train"]

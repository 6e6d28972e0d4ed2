import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile

from attune.audio.decode import read_utterance
from attune.corpora import open_corpus, open_manifest
from attune.corpora._scan import find_duplicates
from attune.errors import DataError
from attune.sources import content_of
from attune.testing.data import make_corpus
from attune.types import Utterance


@pytest.fixture
def data(tmp_path):
    """A folder with one audio file of half a second."""
    (tmp_path / "audio").mkdir()
    soundfile.write(tmp_path / "audio/a.wav", np.full(8000, 0.1), 16000)
    return tmp_path


def row(id, **fields):
    return {"id": id, "audio": "audio/a.wav", "seconds": 0.5, "text": "hello"} | fields


def write(path: Path, *rows):
    path.write_text("".join((text if isinstance(text, str) else json.dumps(text)) + "\n" for text in rows))
    return path


def opened(path):
    return open_manifest(path, path.parent / "index")


def reasons(manifest):
    return {int(problem.where.rsplit(":", 1)[1]): problem.reason for problem in manifest.problems}


def test_a_row_is_read_by_its_number_with_its_place_for_messages(data):
    path = write(data / "m.jsonl", row("u1"), "", row("u2", speaker="anna", language="no", mood="calm", start=0.1))
    manifest = opened(path)
    assert len(manifest) == 2 and manifest.problems == ()
    assert manifest[1] == Utterance(
        id="u2",
        seconds=0.5,
        audio=data / "audio/a.wav",
        start=0.1,
        text="hello",
        speaker="anna",
        language="no",
        labels={"mood": "calm"},
        where=f"{path}:3",
    )
    assert list(manifest) == [manifest[0], manifest[1]]
    assert manifest[-1].id == "u2"
    with pytest.raises(IndexError):
        manifest[2]


def test_seconds_that_are_not_given_come_from_the_audio_file(data):
    without = {"audio": "audio/a.wav"}
    manifest = opened(write(data / "m.jsonl", without, without | {"start": 0.2}, {"id": "t", "text": "no audio"}))
    np.testing.assert_allclose(manifest.seconds, [0.5, 0.3, 0.0])
    assert [utterance.seconds for utterance in manifest] == list(manifest.seconds)
    assert manifest[2].audio is None


def test_audio_paths_may_be_absolute(data):
    path = str(data / "audio/a.wav")
    assert opened(write(data / "m.jsonl", row("u", audio=path)))[0].audio == Path(path)


def test_bad_rows_are_left_out_and_named_with_their_lines(data):
    (data / "audio/empty.wav").touch()
    (data / "audio/words.wav").write_text("words")
    manifest = opened(
        write(
            data / "m.jsonl",
            row("u1"),
            '{"id": "cut',
            row("u3", audio="audio/absent.wav"),
            row("u4", audio="audio/empty.wav"),
            row("u5", audio="audio/words.wav", seconds=None),
            row("u6", audio="audio"),
            row("u7", audio="audio/\x00.wav"),
            row("u8", start=0.5, seconds=None),
            row("u9", text=""),
            row("u1"),
            row("u11"),
        )
    )
    assert [utterance.id for utterance in manifest] == ["u1", "u11"]
    found = reasons(manifest)
    assert list(found) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert found[3] == f"missing audio file {data}/audio/absent.wav"
    assert found[4] == f"empty audio file {data}/audio/empty.wav"
    assert "is not audio" in found[5]
    assert "missing" in found[6] and "missing" in found[7]
    assert found[8].startswith("start is 0.5, beyond the end")
    assert found[10] == "duplicate id, first on line 1"
    assert [problem.id for problem in manifest.problems][-1] == "u1"


def test_csv_and_tsv_rows_are_like_jsonl_rows(data):
    plain = opened(write(data / "m.jsonl", row("u1"), row("u2", text="a, b")))
    comma = opened(
        write(data / "m.csv", "id,audio,seconds,text", "u1,audio/a.wav,0.5,hello", 'u2,audio/a.wav,0.5,"a, b"')
    )
    tab = opened(
        write(data / "m.tsv", "id\twav\tduration\tsentence", "u1\taudio/a.wav\t\thello", "u2\taudio/a.wav\t.5\ta, b")
    )
    for manifest in (comma, tab):
        assert [(u.id, u.audio, u.seconds, u.text) for u in manifest] == [
            (u.id, u.audio, u.seconds, u.text) for u in plain
        ]
        assert manifest[1].where == f"{manifest.path}:3"


def test_problems_of_a_csv_are_named_by_its_own_lines(data):
    path = write(
        data / "m.csv", "id,audio,text", 'u1,audio/a.wav,"two\nlines"', "u2,audio/b.wav,x", "u3", "u1,audio/a.wav,z"
    )
    found = reasons(opened(path))
    assert list(found) == [4, 5, 6]
    assert found[6] == "duplicate id, first on line 2"


@pytest.mark.parametrize("audio", ["https://h/a.wav?jwt=5ecret", "https://h/a.wav?k=5ecret", "s3://KEY:5ecret@b/a.wav"])
def test_what_opens_an_address_is_in_no_index(data, audio):
    rows = opened(
        write(
            data / "m.jsonl", {"audio": audio, "seconds": 0.5, "text": "a"}, {"audio": audio, "seconds": 0.5, "text": 1}
        )
    )
    assert (rows[0].audio, len(rows)) == (audio, 1)
    assert "5ecret" not in rows[0].id
    table = opened(write(data / "m.csv", "audio,seconds,text", f"{audio},0.5,a", "audio/a.wav,0.5,b"))
    assert len(table) == 1 and "use a .jsonl manifest" in reasons(table)[2]
    files = [path for path in (data / "index").rglob("*") if path.is_file()]
    assert files and not [path for path in files if b"5ecret" in path.read_bytes()]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("absent.jsonl", None, "does not exist"),
        ("m.json", "{}", r"Expected .jsonl, .csv or .tsv .*: attune prepare auto --from .*m\.json --to FOLDER"),
        ("m.jsonl", "", "has no rows"),
        ("m.jsonl", "\n \n", "has no rows"),
        ("m.csv", "id,text\n", "has no rows"),
    ],
)
def test_a_manifest_that_cannot_be_opened_says_why(tmp_path, name, content, reason):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=reason):
        opened(tmp_path / name)


def test_equal_hashes_of_different_ids_are_no_duplicates():
    hashes = np.array([7, 5, 7, 7, 9], np.uint64)
    assert find_duplicates(hashes, ["a", "b", "c", "a", "d"].__getitem__) == [(3, 0)]


def test_a_manifest_pickles_as_a_few_paths(data):
    manifest = opened(write(data / "m.jsonl", *(row(f"u{number}") for number in range(1000))))
    pickled = pickle.dumps(manifest)
    assert len(pickled) < 2000
    assert pickle.loads(pickled)[999] == manifest[999]


@pytest.mark.parametrize("change", ["rewritten", "cut", "removed"])
def test_a_manifest_that_changes_under_way_is_noticed(data, change):
    path = write(data / "m.jsonl", row("u1"), row("u2"))
    manifest = opened(path)
    if change == "removed":
        path.unlink()
    else:
        write(path, row("u1"), *([row("u3")] if change == "rewritten" else []))
    with pytest.raises(DataError, match="was changed or removed while in use"):
        manifest[1]


def test_manifests_in_a_corpus_follow_one_another(data):
    first = write(data / "one.jsonl", row("u1", seconds=1), row("u2", seconds=2))
    second = write(data / "two.jsonl", row("u3", seconds=3))
    corpus = open_corpus("train", [first, second], data / "index")
    assert corpus.name == "train" and len(corpus) == 3 and corpus.problems == ()
    assert list(corpus.seconds) == [1, 2, 3]
    assert [corpus[index].id for index in range(3)] == [utterance.id for utterance in corpus] == ["u1", "u2", "u3"]
    assert corpus[-1].where == f"{second}:1"
    with pytest.raises(IndexError):
        corpus[3]


def test_an_id_that_an_earlier_manifest_has_is_a_problem(data):
    first = write(data / "one.jsonl", row("u1", seconds=1), row("u2", seconds=2))
    second = write(data / "two.jsonl", row("u2", seconds=3), row("u3", seconds=4), row("u1", seconds=5), "{")
    third = write(data / "three.csv", "id,audio,seconds", "u4,audio/a.wav,6", "u3,audio/a.wav,7", "u5,audio/a.wav,8")
    corpus = open_corpus("train", [first, second, third], data / "index")
    for same in (corpus, pickle.loads(pickle.dumps(corpus))):
        assert list(same.seconds) == [1, 2, 4, 6, 8]
        assert [same[index].id for index in range(5)] == [u.id for u in same] == ["u1", "u2", "u3", "u4", "u5"]
        assert [same[index].seconds for index in range(5)] == list(same.seconds)
    assert [(problem.where, problem.id) for problem in corpus.problems] == [
        (f"{second}:4", None),
        (f"{second}:1", "u2"),
        (f"{second}:3", "u1"),
        (f"{third}:3", "u3"),
    ]
    assert corpus.problems[1].reason == f"duplicate id, first at {first}:2"


def test_a_corpus_of_no_manifest_or_one_twice_is_refused(data):
    path = write(data / "m.jsonl", row("u1"))
    for paths in ([], [path, path]):
        with pytest.raises(DataError, match="`dev` needs one or more manifests, each once"):
            open_corpus("dev", paths, data / "index")


def test_the_fingerprint_changes_with_the_rows_and_not_with_the_place(data):
    path = write(data / "m.jsonl", row("u1"), row("u2", audio="audio/late.wav"))
    before = open_corpus("train", [path], data / "index").fingerprint
    assert open_corpus("dev", [path], data / "elsewhere").fingerprint == before
    (data / "audio/late.wav").write_bytes((data / "audio/a.wav").read_bytes())
    with_late = open_corpus("train", [path], data / "index").fingerprint
    write(path, row("u1"), row("u2", text="other"))
    assert len({before, with_late, open_corpus("train", [path], data / "index").fingerprint}) == 3


def test_rows_point_into_shards_at_channels_and_at_addresses(data):
    recording = (data / "audio/a.wav").read_bytes()
    (data / "shard.tar").write_bytes(b"x" * 700 + recording + b"y" * 100)
    part = {"audio": "shard.tar", "first_byte": 700, "byte_count": len(recording)}
    path = write(
        data / "m.jsonl",
        row("part", **part),
        row("measured", seconds=None, **part),
        row("cut off", **part | {"byte_count": 10_000_000}),
        row("half", **part | {"byte_count": None}),
        row("far", audio="https://host/a.tar", first_byte=0, byte_count=9, channel=1),
        row("label", channel="left"),
    )
    manifest = opened(path)
    found = {utterance.id: utterance for utterance in manifest}
    assert read_utterance(found["part"], content=content_of(found["part"])).shape == (8000,)
    assert found["measured"].seconds == 0.5
    assert (found["far"].audio, found["far"].channel) == ("https://host/a.tar", 1)
    assert found["label"].channel is None and found["label"].labels == {"channel": "left"}
    assert reasons(manifest) == {
        3: f"{data / 'shard.tar'} is truncated or changed: it ends before the recording does",
        4: "only one of first_byte and byte_count is given; they belong together",
    }


def test_the_first_scan_says_how_far_it_is_and_later_ones_say_nothing(tmp_path):
    manifest = make_corpus(tmp_path, utterances=3)
    seen = []
    open_manifest(manifest, tmp_path / "index", seen.append)
    assert [each.verb for each in seen] == ["scanning"] * 2
    assert (seen[0].done, seen[-1].done) == (0, manifest.stat().st_size) and seen[-1].total == seen[-1].done
    open_manifest(manifest, tmp_path / "index", seen.append)
    assert len(seen) == 2

"""Data sets on a hub: prepared from its files, and shards of it read in place."""

import io
import json
import tarfile

import pytest

from attune.corpora import SHARDS, expand_shards, fetch_manifest, open_manifest, read_samples
from attune.errors import DataError, SourceError
from attune.site import Site
from attune.sources import Cache, content_of
from attune.stages.prepare import PrepareRequest, prepare_corpus

import miniatures
from servers.hub import Hub, serve_hub


@pytest.fixture
def hub(monkeypatch):
    hub = Hub()
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with serve_hub(hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield hub


def prepared(corpus, source, folder, *options):
    site = Site(Cache(folder / "cache"), 0)
    stage = prepare_corpus(PrepareRequest(corpus, source, folder / "to", options), 1, site)
    for _ in stage:
        pass
    return list(open_manifest(folder / "to" / "train.jsonl", folder / "index"))


def test_a_data_set_of_parquet_files_is_fetched_and_prepared(hub, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    contents = [miniatures.encoded() for _ in range(5)]
    audio = [{"bytes": content, "path": None} for content in contents]
    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.table({"audio": audio, "sentence": list("abcde")}), path, row_group_size=2)
    hub.put("org/words", {"data/train-00000-of-00001.parquet": path.read_bytes()}, kind="datasets")
    rows = prepared("huggingface", "hf://datasets/org/words", tmp_path)
    assert [row.text for row in rows] == list("abcde")
    assert [content_of(row) for row in rows] == contents


def test_shards_of_a_data_set_are_indexed_and_read_where_they_are(hub, tmp_path):
    path = miniatures.shard(tmp_path / "train-000.tar", ["a", "b", "c"])
    hub.put("org/shards", {"train-000.tar": path.read_bytes()}, kind="datasets")
    rows = prepared("shards", "hf://datasets/org/shards/train-000.tar", tmp_path)
    assert [row.text for row in rows] == ["text of a", "text of b", "text of c"]
    assert all(str(row.audio).startswith("hf://datasets/org/shards/") for row in rows)
    assert {content_of(row)[:4] for row in rows} == {b"fLaC"}
    assert not list((tmp_path / "cache").rglob("*.tar"))  # nothing was copied


def parquet_of(contents, **columns):
    """A Parquet file as `datasets` writes it: row groups, an Audio feature, class labels with their names."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    audio = pyarrow.array(
        [{"bytes": content, "path": f"{number}.flac"} for number, content in enumerate(contents)],
        pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())]),
    )
    table = pyarrow.table({"client_id": ["v1"] * len(contents), "audio": audio, **columns})
    features = {"accent": {"names": ["north", "south"], "_type": "ClassLabel"}, "audio": {"_type": "Audio"}}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    out = io.BytesIO()
    parquet.write_table(table, out, row_group_size=2)
    return out.getvalue()


@pytest.fixture
def parquet_set(hub):
    """Common Voice as Parquet: a folder for each language, files for each split."""
    contents = [miniatures.encoded() for _ in range(5)]
    one = parquet_of(contents[:3], sentence=["a", "b", "c"], accent=[1, 0, -1], locale=["be"] * 3)
    two = parquet_of(contents[3:], sentence=["d", "e"], accent=[1, 1], locale=["be"] * 2)
    other = parquet_of([miniatures.encoded()], sentence=["x"], accent=[0], locale=["fr"])
    files = {
        "be/train-00000-of-00002.parquet": one,
        "be/train-00001-of-00002.parquet": two,
        "be/train_extra-00000-of-00001.parquet": other,
        "be/validation-00000-of-00001.parquet": two,
        "fr/train-00000-of-00001.parquet": other,
    }
    hub.put("org/voices", files, kind="datasets")
    return contents


def tar_of(names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            miniatures.put(archive, f"be_x/{name}.flac", miniatures.encoded())
    return out.getvalue()


@pytest.fixture
def tar_set(hub):
    """Common Voice as tar files, with the transcripts apart."""
    table = "client_id\tpath\tsentence\tage\tlocale\n" + "".join(
        f'v{name}\t{name}.flac\t"{name}, he\u2028said\t\tbe\n'
        for name in "abc"  # with a line separator of Unicode's
    )
    files = {
        "audio/be/train/be_train_0.tar": tar_of("ab"),
        "audio/be/train/be_train_1.tar": tar_of("cz"),
        "audio/be/dev/be_dev_0.tar": tar_of("a"),
        "audio/fr/train/fr_train_0.tar": tar_of("q"),
        **{f"transcript/{split}.tsv": table.encode() for split in ("be/train", "be/dev", "fr/train")},
    }
    hub.put("org/tars", files, kind="datasets")


def streamed(source):
    shards = expand_shards([source], SHARDS)
    return shards, [sample for shard in shards for sample in read_samples(shard)]


@pytest.mark.parametrize("source", ["be/train", "be/train-*.parquet"])
def test_a_split_of_parquet_files_is_streamed_and_goes_on_from_any_row(parquet_set, source):
    shards, samples = streamed(f"hf://datasets/org/voices/{source}")
    assert [shard.rpartition("/")[2] for shard in shards] == [f"train-0000{n}-of-00002.parquet" for n in range(2)]
    assert [sample.content for sample in samples] == parquet_set
    rows = [sample.found for sample in samples]
    assert [row.text for row in rows] == list("abcde") and {row.speaker for row in rows} == {"v1"}
    assert {row.language for row in rows} == {"be"}
    assert [row.labels for row in rows[:3]] == [{"accent": "south"}, {"accent": "north"}, {}]
    assert [sample.end for sample in samples] == [1, 2, 3, 1, 2]
    assert [sample.found for sample in read_samples(shards[0], 1)] == rows[1:3]


def test_a_split_of_tar_files_is_streamed_with_the_transcripts_that_lie_apart(tar_set):
    _, samples = streamed("hf://datasets/org/tars/audio/be/train")
    *rows, last = [sample.found for sample in samples]
    assert [(row.id, row.text, row.speaker) for row in rows] == [(n, f'"{n}, he\u2028said', f"v{n}") for n in "abc"]
    assert last.reason == "not in train.tsv"


def test_a_data_set_of_tar_files_is_prepared_one_language_alone(hub, tar_set, tmp_path):
    rows = prepared("huggingface", "hf://datasets/org/tars", tmp_path, "config=be", "splits=train")
    assert [row.text for row in rows] == [f'"{name}, he\u2028said' for name in "abc"]
    assert all(content_of(row)[:4] == b"fLaC" for row in rows)
    assert not [path for path in hub.downloads() if "/fr/" in path or "dev" in path]
    with pytest.raises(DataError, match=r"no data for config=xx .*Its folders: audio, be, dev, fr"):
        prepared("huggingface", "hf://datasets/org/tars", tmp_path / "other", "config=xx")


@pytest.mark.parametrize("corpus", ["huggingface", "auto"])
def test_a_data_set_of_parquet_files_is_prepared_one_language_alone(hub, parquet_set, tmp_path, corpus):
    rows = prepared(corpus, "hf://datasets/org/voices", tmp_path, "config=be")
    assert [content_of(row) for row in rows] == parquet_set
    assert [row.labels.get("accent") for row in rows] == ["south", "north", None, "south", "south"]
    assert not [path for path in hub.downloads() if "/fr/" in path]


def test_a_split_on_the_hub_stands_for_a_manifest_and_only_it_is_fetched(hub, parquet_set, tar_set, tmp_path):
    cache = Cache(tmp_path / "cache")
    source = "hf://datasets/org/voices/be/validation"
    manifest = fetch_manifest(source, cache)
    rows = list(open_manifest(manifest, tmp_path / "index"))
    assert manifest.name == "validation.jsonl" and [content_of(row) for row in rows] == parquet_set[3:]
    assert {path.rpartition("/")[2] for path in hub.downloads()} == {"validation-00000-of-00001.parquet"}
    assert set(cache.used[source].files) == {"be/validation-00000-of-00001.parquet"}
    tars = fetch_manifest("hf://datasets/org/tars/audio/be/dev", cache)
    assert [row.text for row in open_manifest(tars, tmp_path / "index")] == ['"a, he\u2028said']


def test_a_run_keeps_to_the_set_that_it_was_locked_to_and_needs_no_network_for_it(hub, parquet_set, tmp_path):
    source = "hf://datasets/org/voices/be/validation"
    cache = Cache(tmp_path / "cache")
    manifest = fetch_manifest(source, cache)
    hub.put("org/voices", {"be/validation-00000-of-00001.parquet": b"another"}, kind="datasets")
    asked = len(hub.asked)
    assert fetch_manifest(source, Cache(tmp_path / "cache", is_offline=True).locked_to(cache.used)) == manifest
    assert len(hub.asked) == asked


def test_a_sample_without_audio_is_a_bad_row_of_the_set(hub, tmp_path):
    hub.put("org/few", {"test.parquet": parquet_of([miniatures.encoded(), b""], sentence=["a", "b"])}, kind="datasets")
    manifest = open_manifest(fetch_manifest("hf://datasets/org/few/test", Cache(tmp_path)), tmp_path / "index")
    assert len(manifest) == 1
    assert [problem.reason for problem in manifest.problems] == ["no audio"]


def test_a_gated_set_says_how_to_log_in(hub, parquet_set, tmp_path, monkeypatch):
    hub.gated = "letmein"
    for read in (
        lambda: streamed("hf://datasets/org/voices/be/train"),
        lambda: prepared("auto", "hf://datasets/org/voices", tmp_path),
    ):
        with pytest.raises(
            (DataError, SourceError), match=r"gated, accept its conditions at .*/datasets/org/voices, .*hf auth login"
        ):
            read()
    monkeypatch.setenv("HF_TOKEN", "letmein")
    assert len(streamed("hf://datasets/org/voices/be/train")[1]) == 5

"""Data sets on a hub: prepared from its files, and shards of it read in place."""

import pytest

from attune.corpora import open_manifest
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


def prepared(corpus, source, folder):
    stage = prepare_corpus(PrepareRequest(corpus, source, folder / "to"), 1, Site(Cache(folder / "cache"), 0))
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

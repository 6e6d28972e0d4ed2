"""Whatever the data is, a folder, a table, an archive or a URL, one call makes manifests of it."""

import json
import shutil
import tarfile

import pytest

from attune.corpora import detect_corpus
from attune.errors import AttuneError, DataError
from attune.site import Site
from attune.sources import Cache
from attune.stages.prepare import Understood, prepare_data

import miniatures
from range_server import Behavior, serving

pytestmark = pytest.mark.recipe


def prepared(source, folder, *options):
    stage = prepare_data(str(source), folder / "to", Site(Cache(folder / "cache"), 0), options=options)
    events = []
    while True:
        try:
            events.append(next(stage))
        except StopIteration as end:
            (understood,) = (event for event in events if isinstance(event, Understood))
            return understood, {split.split: read(split.manifest) for split in end.value}


def read(manifest):
    return [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def recordings(tmp_path):
    """Three recordings with a table, in a folder that an archive is made of."""
    folder = tmp_path / "packed" / "my data"
    (folder / "clips").mkdir(parents=True)
    for name in "abc":
        (folder / "clips" / f"{name}.flac").write_bytes(miniatures.encoded())
    (folder / "train.csv").write_text("Datei;Text\n" + "".join(f"clips/{name}.flac;{name}\n" for name in "abc"))
    return folder


def test_a_table_is_recognized(recordings, tmp_path):
    understood, splits = prepared(recordings / "train.csv", tmp_path)
    assert understood.corpus == "csv" and "audio = Datei, text = Text" in understood.notes[1]
    assert [row["text"] for row in splits["train"]] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["zip", "gztar", "tar"])
def test_an_archive_is_unpacked_beside_its_manifests(recordings, tmp_path, kind):
    archive = shutil.make_archive(str(tmp_path / "data"), kind, tmp_path / "packed")
    understood, splits = prepared(archive, tmp_path)
    assert understood.corpus == "csv" and len(splits["train"]) == 3
    assert splits["train"][0]["audio"].startswith("unpacked-")
    assert prepared(archive, tmp_path)[1] == splits  # and not unpacked again


def test_an_archive_at_a_url_is_fetched_and_its_hash_is_checked(recordings, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "web" / "data"), "zip", tmp_path / "packed")
    with serving(tmp_path / "web", Behavior()) as url:
        understood, splits = prepared(f"{url}/data.zip", tmp_path)
        assert understood.corpus == "csv" and len(splits["train"]) == 3
        with pytest.raises(AttuneError, match="sha256|SHA-256|hash"):
            prepared(f"{url}/data.zip#sha256={'0' * 64}", tmp_path / "other")
    assert archive


def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path):
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as archive:
        miniatures.put(archive, "../outside.csv", b"audio,text\n")
    with pytest.raises(AttuneError, match="outside its folder"):
        prepared(tmp_path / "bad.tar.gz", tmp_path)
    assert not (tmp_path / "outside.csv").exists() and not list((tmp_path / "to").glob("unpacked-*"))


def test_what_a_folder_holds_is_recognized(tmp_path):
    sources = {
        "common_voice": miniatures.common_voice(tmp_path / "1"),
        "csv": miniatures.csv_files(tmp_path / "2"),
        "shards": miniatures.shard(tmp_path / "3" / "train-000.tar", ["a"]).parent,
    }
    (tmp_path / "4").mkdir()
    (tmp_path / "4/a.flac").write_bytes(miniatures.encoded())
    sources["folder"] = tmp_path / "4"
    miniatures.text(tmp_path / "6/train/wav.scp", "a /recordings/a.wav")
    sources["kaldi"] = tmp_path / "6"
    miniatures.text(tmp_path / "7/train_manifest.json", '{"audio_filepath": "wavs/a.flac", "text": "a"}')
    miniatures.text(tmp_path / "7/wavs/a.flac", "recorded")
    sources["nemo"] = tmp_path / "7"
    assert {name: detect_corpus(path) for name, path in sources.items()} == {name: name for name in sources}
    assert detect_corpus(miniatures.audio_folder(tmp_path / "8", "csv")) == "csv"
    assert detect_corpus(miniatures.audio_folder(tmp_path / "9", "jsonl")) == "nemo"
    (tmp_path / "5").mkdir()
    with pytest.raises(DataError, match="not data that attune recognizes"):
        detect_corpus(tmp_path / "5")

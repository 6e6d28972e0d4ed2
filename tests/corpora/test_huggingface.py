"""Data sets of the hub: which file and which column a recording is read from."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from attune import catalog
from attune.corpora import CORPORA, CorpusPaths, open_manifest, prepare_split
from attune.errors import DataError
from attune.sources import content_of

import miniatures

AUDIO = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def prepare(source, to, **options):
    """The rows of the split train."""
    layout = catalog.find(CORPORA, "huggingface")
    for split, found in layout.read(CorpusPaths(str(source), to), layout.options(**options)).items():
        list(prepare_split(split, found, to, jobs=1))
    return list(open_manifest(to / "train.jsonl", to / "index"))


def recordings(rows):
    return [content_of(row) or row.audio.read_bytes() for row in rows]


def column(contents):
    return pyarrow.array([{"bytes": each, "path": "a.flac"} for each in contents], AUDIO)


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_files_of_one_name_in_two_folders_keep_their_own_recordings(tmp_path, copy, named):
    contents = {language: [miniatures.encoded(), miniatures.encoded()] for language in ("en", "fr")}
    for language, audio in contents.items():
        ids = {"id": [f"{language}-0", f"{language}-1"]} if named else {}
        write(tmp_path / language / "train-00000-of-00001.parquet", audio=column(audio), text=["a", "b"], **ids)
    rows = prepare(tmp_path, tmp_path / "to", copy=copy)
    assert recordings(rows) == [*contents["en"], *contents["fr"]]


def test_one_parquet_file_is_a_data_set(tmp_path):
    content = miniatures.encoded()
    write(tmp_path / "train.parquet", audio=column([content]), text=["a"])
    rows = prepare(tmp_path / "train.parquet", tmp_path / "to", copy=True)
    assert recordings(rows) == [content]
    assert rows[0].audio == tmp_path / "to/audio/train/train/000000.flac"


def two_columns(path):
    """A file with two recordings in each row; the first column is the one that rows are read from."""
    noisy, clean = miniatures.encoded(), miniatures.encoded()
    write(path, noisy=column([noisy]), clean=column([clean]), text=["a"])
    return noisy, clean


def test_another_audio_column_than_the_first_must_be_copied(tmp_path):
    noisy, clean = two_columns(tmp_path / "train.parquet")
    assert recordings(prepare(tmp_path, tmp_path / "first", audio="noisy")) == [noisy]
    with pytest.raises(DataError, match=r"are read from the column 'noisy', not from 'clean'.*copy=true"):
        prepare(tmp_path, tmp_path / "other", audio="clean")
    assert recordings(prepare(tmp_path, tmp_path / "copied", audio="clean", copy=True)) == [clean]


@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.large_binary()])
@pytest.mark.parametrize("copy", [False, True])
def test_recordings_may_be_a_column_of_plain_bytes(tmp_path, kind, copy):
    contents = [miniatures.encoded(), miniatures.encoded()]
    write(tmp_path / "train.parquet", audio=pyarrow.array(contents, kind), text=["a", "b"])
    assert recordings(prepare(tmp_path, tmp_path / "to", copy=copy)) == contents


def test_plain_bytes_beside_the_audio_must_be_copied(tmp_path):
    usual, plain = miniatures.encoded(), miniatures.encoded()
    write(tmp_path / "train.parquet", raw=pyarrow.array([plain]), audio=column([usual]), text=["a"])
    assert recordings(prepare(tmp_path, tmp_path / "first")) == [usual]
    with pytest.raises(DataError, match="copy=true"):
        prepare(tmp_path, tmp_path / "other", audio="raw")


def test_a_column_without_recordings_is_refused(tmp_path):
    write(tmp_path / "train.parquet", audio=column([miniatures.encoded()]), text=["a"])
    with pytest.raises(DataError, match="the column 'text' has string, not audio"):
        prepare(tmp_path, tmp_path / "to", audio="text")


def save(folder, table, *names):
    """What `save_to_disk` writes, as far as it matters: a table under each name, the first one listed."""
    folder.mkdir(parents=True)
    for name in names:
        with pyarrow.OSFile(str(folder / name), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_split": "train", "_data_files": [{"filename": names[0]}]}))


def test_an_arrow_file_may_have_a_column_of_plain_bytes_too(tmp_path):
    contents = [miniatures.encoded(), miniatures.encoded()]
    save(tmp_path / "set", pyarrow.table({"audio": pyarrow.array(contents), "text": ["a", "b"]}), "data-0.arrow")
    assert recordings(prepare(tmp_path / "set", tmp_path / "to")) == contents


def test_only_the_files_that_the_data_set_lists_are_its_data(tmp_path):
    content = miniatures.encoded()
    table = pyarrow.table({"audio": column([content]), "text": ["a"]})
    save(tmp_path / "set", table, "data-00000-of-00001.arrow", "cache-0123456789abcdef.arrow")
    assert recordings(prepare(tmp_path / "set", tmp_path / "to")) == [content]


def test_a_saved_data_set_that_lacks_a_file_or_its_list_is_refused(tmp_path):
    save(tmp_path / "set", pyarrow.table({"audio": column([b"x"]), "text": ["a"]}), "data-0.arrow")
    (tmp_path / "set/data-0.arrow").unlink()
    with pytest.raises(DataError, match=r"set is incomplete: data-0\.arrow is missing"):
        prepare(tmp_path / "set", tmp_path / "to")
    (tmp_path / "set/state.json").write_text("{}")
    with pytest.raises(DataError, match=r"state\.json does not list the dataset's files"):
        prepare(tmp_path / "set", tmp_path / "to")


def test_class_labels_have_their_names_and_speaker_id_is_the_speaker(tmp_path):
    features = {"features": {"emotion": {"names": ["calm", "glad"], "_type": "ClassLabel"}}}
    table = pyarrow.table({"audio": column([miniatures.encoded()] * 3), "emotion": [1, 0, -1], "speaker_id": [7, 8, 9]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": features})})
    save(tmp_path / "set", table, "data-0.arrow")
    rows = prepare(tmp_path / "set", tmp_path / "to")
    assert [row.labels for row in rows] == [{"emotion": "glad"}, {"emotion": "calm"}, {}]
    assert [row.speaker for row in rows] == ["7", "8", "9"]

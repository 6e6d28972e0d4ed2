"""Data sets of the hub: which file and which column a recording is read from."""

import pyarrow
import pyarrow.parquet
import pytest

from attune import catalog
from attune.corpora import Place, open_manifest, prepare_split
from attune.sources import content_of

import miniatures

AUDIO = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def prepare(source, to, **options):
    """The rows of the split train."""
    layout = catalog.find("corpora", "huggingface")
    for split, found in layout.read(Place(str(source), to), layout.options(**options)).items():
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

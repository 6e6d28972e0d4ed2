"""SBCSAE, spontaneous American English, as preprocessed for SUPERB's OOD-ASR: wav/ and {train,dev,test}.tsv."""

from collections.abc import Iterator
from pathlib import Path

from attune.corpora._layout import CorpusPaths, Layout, NoOptions, RowOrSkipped, Skipped, first_existing
from attune.corpora._rows import Row
from attune.corpora._tables import read_records


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each table."""
    wav = first_existing(corpus, "wav")
    tables = {split: first_existing(corpus, f"{split}.tsv", f"tsv/{split}.tsv") for split in ("train", "dev", "test")}
    return {split: _rows(table, wav) for split, table in tables.items()}


def _rows(table: Path, wav: Path) -> Iterator[RowOrSkipped]:
    for record in read_records(table, ("path", "sentence")):
        if isinstance(record, Skipped):
            yield record
        elif ".." in Path(record["path"]).parts or Path(record["path"]).is_absolute() or not Path(record["path"]).name:
            yield Skipped(record["path"], "path outside wav/")
        else:
            path = Path(record["path"])
            yield Row(path.with_suffix("").as_posix(), str(wav / path), text=record["sentence"], language="en")


CORPUS = Layout(read)

"""Fluent Speech Commands: smart-home commands; labels action, object, location, and the three as intent."""

from collections.abc import Iterator
from pathlib import Path

from attune.corpora._layout import CorpusPaths, Layout, NoOptions, RowOrSkipped, Skipped, first_existing
from attune.corpora._rows import Row
from attune.corpora._tables import read_records

SLOTS = ("action", "object", "location")
TABLES = {"train": "train_data.csv", "dev": "valid_data.csv", "test": "test_data.csv"}


def read(corpus: CorpusPaths, options: NoOptions) -> dict[str, Iterator[RowOrSkipped]]:
    """A split for each of the corpus's tables."""
    data = first_existing(corpus, "data", "fluent_speech_commands_dataset/data")
    return {split: _rows(data.parent, data / name) for split, name in TABLES.items()}


def _rows(root: Path, table: Path) -> Iterator[RowOrSkipped]:
    for record in read_records(table, ("path", "speakerId", "transcription", *SLOTS)):
        if isinstance(record, Skipped):
            yield record
            continue
        if ".." in Path(record["path"]).parts:
            yield Skipped(record["path"], "path outside the corpus")
            continue
        slots = {slot: record[slot] for slot in SLOTS}
        name = Path(record["path"])
        yield Row(
            f"{record['speakerId']}/{name.stem}",
            str(root / name),
            text=record["transcription"],
            speaker=record["speakerId"],
            language="en",
            labels={**slots, "intent": " ".join(slots.values())},
        )


CORPUS = Layout(read, speakers_apart=True)

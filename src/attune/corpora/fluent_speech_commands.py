"""Fluent Speech Commands: what a smart home is told; labels action, object, location, and the three as intent."""

from collections.abc import Iterator
from pathlib import Path

from attune.corpora._layout import Found, Layout, NoOptions, Place, Skipped, one_of
from attune.corpora._rows import Row
from attune.corpora._tables import records_of

SLOTS = ("action", "object", "location")
TABLES = {"train": "train_data.csv", "dev": "valid_data.csv", "test": "test_data.csv"}


def read(place: Place, options: NoOptions) -> dict[str, Iterator[Found]]:
    """A split for each of the corpus's tables."""
    data = one_of(place, "data", "fluent_speech_commands_dataset/data")
    return {split: _rows(data.parent, data / name) for split, name in TABLES.items()}


def _rows(root: Path, table: Path) -> Iterator[Found]:
    for record in records_of(table, ("path", "speakerId", "transcription", *SLOTS)):
        if isinstance(record, Skipped):
            yield record
            continue
        if ".." in Path(record["path"]).parts:
            yield Skipped(record["path"], "a path that leads out of the corpus")
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

"""Rows of HF datasets: fields under their usual names there, class labels by name, Parquet read row by row."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attune.corpora._rows import NAMES, Row, read_row
from attune.errors import DataError
from attune.files import parse_json

USUAL = {
    "text": (*NAMES["text"], "normalized_text", "raw_transcription"),
    "speaker": ("speaker", "speaker_id", "client_id"),
    "language": ("language", "lang", "locale"),
}
BATCH = 64  # rows decoded together


def require_arrow() -> None:
    """Refuse, with what to install, where pyarrow is absent."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise DataError("HF datasets need pyarrow. Run: pip install 'attune-speech[data]'") from error


def class_names(schema: Any) -> dict[str, Sequence[str]]:
    """The names of the classes of each column that has numbers for them, from the metadata that `datasets` writes."""
    try:
        features = parse_json((schema.metadata or {})[b"huggingface"])["info"]["features"]
        labels = {name: each for name, each in features.items() if each.get("_type") == "ClassLabel"}
        return {name: list(each["names"]) for name, each in labels.items()}
    except (KeyError, ValueError, TypeError, AttributeError):  # a file that `datasets` has not written
        return {}


def hub_row(
    id: str, audio: str, fields: Mapping[str, Any], classes: Mapping[str, Sequence[str]], text: str | None
) -> Row:
    """The row of a record, or BadRow; `text` names the column of the text where it is unusual."""
    plain = {name: _named(value, classes.get(name)) for name, value in fields.items()}
    plain = {name: value for name, value in plain.items() if isinstance(value, str | int | float)}
    for name in NAMES["audio"]:  # Common Voice has a path beside its audio
        plain.pop(name, None)
    found = {field: _take(plain, names, text if field == "text" else None) for field, names in USUAL.items()}
    plain.pop("row", None)  # of another table, not of this file
    # An empty transcript is reported; an empty speaker is none.
    found = {name: value for name, value in found.items() if value is not None and (value != "" or name == "text")}
    row: Row = read_row(json.dumps({"id": id, **plain, **found, "audio": audio}).encode())
    return row


def _take(plain: dict[str, Any], names: Sequence[str], first: str | None) -> Any:
    return next((plain.pop(name) for name in (first, *names) if name in plain), None)


def _named(value: Any, names: Sequence[str] | None) -> Any:
    if names is None or not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None  # -1 stands for no class


def batches_of(path: str, kind: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Batches one after the other; what is damaged in one is reported with its file."""
    while True:
        with explained(path, kind):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def explained(path: Path | str, kind: str) -> Iterator[None]:
    """Arrow's errors as DataErrors with the file."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, MemoryError) as error:  # a damaged size is an allocation that fails
        reason = " ".join(str(error).split())
        raise DataError(f"Cannot read {path} as {kind}: {reason}. Download it again.") from error

"""Manifest files to lines of JSON: JSONL as it is, others converted to a JSONL copy that is read by offset."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from attune.corpora._rows import NAMES
from attune.corpora._tables import ENCODING, ERRORS, csv_reader, header_cells, read_cells, require_utf8
from attune.errors import DataError
from attune.secrets import has_secrets

SECRET = (
    "the audio URL has a user, password or query, which may be secret, and rows of tables are copied to the "
    "run's folder; use a .jsonl manifest, which is not copied"
)


class Line(NamedTuple):
    """A line of JSON, its offset in its file, and its line number in the manifest."""

    number: int
    offset: int
    content: bytes
    problem: str | None = None  # why there is no content


def jsonl_lines(path: Path) -> Iterator[Line]:
    """The non-blank lines of a JSONL file."""
    offset = 0
    with path.open("rb") as file:
        for number, content in enumerate(file, 1):
            if not content.isspace():
                yield Line(number, offset, content)
            offset += len(content)


def table_lines(path: Path, copy: BinaryIO) -> Iterator[Line]:
    """The records of a CSV or TSV file as lines of JSON, each written to `copy` before it is yielded."""
    offset = 0
    for number, record in _records(path):
        if isinstance(record, str):
            yield Line(number, offset, b"", record)
            continue
        if any(has_secrets(record.get(name, "")) for name in NAMES["audio"]):
            yield Line(number, offset, b"", SECRET)
            continue
        # An empty cell is an absent value, except for the text: an empty transcript is reported.
        cells = {name: cell for name, cell in record.items() if cell or name in NAMES["text"]}
        content = json.dumps(cells, ensure_ascii=False).encode() + b"\n"
        copy.write(content)
        yield Line(number, offset, content)
        offset += len(content)


def text_lines(path: Path, copy: BinaryIO) -> Iterator[Line]:
    """The non-blank lines of a text file, each an utterance without audio, as `table_lines` has them."""
    require_utf8(path)
    offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                text = raw.decode("utf-8-sig").strip()
            except UnicodeDecodeError:
                yield Line(number, offset, b"", "not UTF-8 text")
                continue
            if text:
                row = {"id": f"{path.absolute().parent.name}/{path.name}:{number}", "text": text}
                content = json.dumps(row, ensure_ascii=False).encode() + b"\n"
                copy.write(content)
                yield Line(number, offset, content)
                offset += len(content)


def _records(path: Path) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Line number and cells of each record, or what is wrong with it."""
    with path.open(encoding=ENCODING, errors=ERRORS, newline="") as file:
        reader = csv_reader(file, path)
        header = _header(reader, path)
        for number, cells in read_cells(reader, path, range(len(header), len(header) + 1)):
            yield number, cells if isinstance(cells, str) else dict(zip(header, cells, strict=True))


def _header(reader: Any, path: Path) -> list[str]:
    header = header_cells(reader, path)
    known = {name for names in NAMES.values() for name in names}
    if not known.intersection(header) or len(set(header)) < len(header):
        raise DataError(
            f"The first line of {path} must name the columns, each once, e.g. id, audio, seconds, text. "
            f"Found: {', '.join(header)[:200] or 'nothing'}. A table with other names becomes a manifest by: attune "
            f"prepare csv --from {path} --to FOLDER"
        )
    return header

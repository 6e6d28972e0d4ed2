"""Manifest files to lines of JSON: JSONL as it is, CSV and TSV converted to a copy that can be read by offset."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from attune.corpora._rows import NAMES
from attune.errors import DataError


@dataclass(frozen=True, slots=True)
class Line:
    """A line of JSON, where it lies in its file, and the line of the manifest it came from."""

    number: int
    offset: int
    content: bytes
    fault: str | None = None  # why there is no content


def jsonl_lines(path: Path) -> Iterator[Line]:
    """The lines of a JSONL file that are not blank."""
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
        # An empty cell is an absent value, except for the text: that it is empty is worth knowing.
        cells = {name: cell for name, cell in record.items() if cell or name in NAMES["text"]}
        content = json.dumps(cells, ensure_ascii=False).encode() + b"\n"
        copy.write(content)
        yield Line(number, offset, content)
        offset += len(content)


def _records(path: Path) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Line number and cells of each record, or why it has none."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = _reader(file, path)
        header = _header(reader, path)
        while True:
            number = reader.line_num + 1  # a quoted cell may span lines; a record is named by its first
            record = _next_record(reader, header)
            if record is None:
                return
            if isinstance(record, str) and reader.line_num > number:  # rows were swallowed, not one is bad
                raise DataError(
                    f"{path}:{number}: {record}, in a row that goes on to line {reader.line_num}. "
                    "Is a quote opened there and not closed?"
                )
            if record:
                yield number, record


def _reader(file: Iterable[str], path: Path) -> Any:
    if path.suffix.lower() == ".tsv":  # by convention nothing is quoted in TSV, and a quote is a quote
        return csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return csv.reader(file, strict=True)


def _header(reader: Any, path: Path) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(f"The first line of {path} is not valid CSV: {error}. It must name the columns.") from error
    known = {name for names in NAMES.values() for name in names}
    if not known.intersection(header) or len(set(header)) < len(header):
        raise DataError(
            f"The first line of {path} must name the columns, each once, such as id, audio, seconds, text; "
            f"found {', '.join(header)[:200] or 'nothing'}."
        )
    return header


def _next_record(reader: Any, header: Sequence[str]) -> dict[str, str] | str | None:
    """The cells of the next record, none for a blank line; why there are none; or nothing at the end."""
    try:
        cells = next(reader, None)
    except csv.Error as error:
        return f"not valid CSV: {error}"
    if not cells:
        return None if cells is None else {}
    if len(cells) != len(header):
        return f"{len(cells)} cells; the first line names {len(header)} columns"
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "not UTF-8 text"
    return dict(zip(header, cells, strict=True))

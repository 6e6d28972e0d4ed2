"""CSV and TSV files: one record at a time; an invalid line does not affect the others.

By convention TSV has no quoting: a quote is a character.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attune.catalog import suggestion
from attune.corpora._layout import Skipped
from attune.errors import DataError

ENCODING, ERRORS = "utf-8-sig", "surrogateescape"  # how a table is opened: an invalid byte is reported with its line


def read_records(path: Path, needed: Sequence[str]) -> Iterator[dict[str, str] | Skipped]:
    """The records of a corpus's table, by column name; `needed` columns must exist.

    Missing cells at the end of a line are empty: some writers omit them.
    """
    with path.open(encoding=ENCODING, errors=ERRORS, newline="") as file:
        reader = csv_reader(file, path)
        header = _header(reader, path, needed)
        for number, cells in read_cells(reader, path, range(1, len(header) + 1)):
            if isinstance(cells, str):
                yield Skipped(f"{path.name}:{number}", cells)
            else:
                yield dict(zip(header, [*cells, *[""] * (len(header) - len(cells))], strict=True))


def _header(reader: Any, path: Path, needed: Sequence[str]) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(
            f"The header of {path} is not valid CSV: {error}. The first line must name the columns."
        ) from error
    for name in needed:
        if name not in header:
            raise DataError(f"{path} has no column {name!r}{suggestion(name, header)}")
    return header


def csv_reader(file: Iterable[str], path: Path) -> Any:
    """A reader that splits the lines of a table into cells."""
    if path.suffix.lower() == ".tsv":
        return csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return csv.reader(file, strict=True)


def read_cells(reader: Any, path: Path, widths: range) -> Iterator[tuple[int, list[str] | str]]:
    """Line number and cells of each non-blank record, or what is wrong with it; `widths` are allowed counts."""
    while True:
        number = reader.line_num + 1  # a quoted cell may span lines; a record is named by its first
        cells = _next_cells(reader, widths)
        if cells is None:
            return
        if isinstance(cells, str) and reader.line_num > number:  # rows were swallowed, not one is bad
            raise DataError(
                f"{path}:{number}: {cells}, in a row that extends to line {reader.line_num}. "
                "Check for a quote that is opened and not closed."
            )
        if cells:
            yield number, cells


def _next_cells(reader: Any, widths: range) -> list[str] | str | None:
    """The cells of the next record, empty for a blank line; a problem; or None at the end."""
    try:
        cells: list[str] | None = next(reader, None)
    except csv.Error as error:
        return f"not valid CSV: {error}"
    if not cells:
        return cells
    if len(cells) not in widths:
        return f"{len(cells)} cells; the header has {widths[-1]} columns"
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "not UTF-8 text"
    return cells

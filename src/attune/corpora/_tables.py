"""CSV and TSV files: their records one by one, and why a line is none; one bad line costs no other.

By convention nothing is quoted in TSV, and a quote is a quote.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from attune.catalog import suggestion
from attune.corpora._layout import Skipped
from attune.errors import DataError

ENCODING, ERRORS = "utf-8-sig", "surrogateescape"  # how a table is opened: a bad byte is told with its line


def records_of(path: Path, needed: Sequence[str]) -> Iterator[dict[str, str] | Skipped]:
    """The records of a table that is no manifest, by column name; `needed` columns must be there.

    Cells that are missing at the end of a line are empty ones: some writers leave those out.
    """
    with path.open(encoding=ENCODING, errors=ERRORS, newline="") as file:
        reader = reader_of(file, path)
        header = _header(reader, path, needed)
        for number, cells in cells_of(reader, path, range(1, len(header) + 1)):
            if isinstance(cells, str):
                yield Skipped(f"{path.name}:{number}", cells)
            else:
                yield dict(zip(header, [*cells, *[""] * (len(header) - len(cells))], strict=True))


def _header(reader: Any, path: Path, needed: Sequence[str]) -> list[str]:
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(f"The first line of {path} is not valid CSV: {error}. It must name the columns.") from error
    for name in needed:
        if name not in header:
            raise DataError(f"{path} has no column {name!r}{suggestion(name, header)}")
    return header


def reader_of(file: Iterable[str], path: Path) -> Any:
    """What cuts the lines of a table into cells."""
    if path.suffix.lower() == ".tsv":
        return csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return csv.reader(file, strict=True)


def cells_of(reader: Any, path: Path, widths: range) -> Iterator[tuple[int, list[str] | str]]:
    """Line number and cells of each record that is not blank, or why it has none; `widths` is how many it may have."""
    while True:
        number = reader.line_num + 1  # a quoted cell may span lines; a record is named by its first
        cells = _next_cells(reader, widths)
        if cells is None:
            return
        if isinstance(cells, str) and reader.line_num > number:  # rows were swallowed, not one is bad
            raise DataError(
                f"{path}:{number}: {cells}, in a row that goes on to line {reader.line_num}. "
                "Is a quote opened there and not closed?"
            )
        if cells:
            yield number, cells


def _next_cells(reader: Any, widths: range) -> list[str] | str | None:
    """The cells of the next record, none for a blank line; why there are none; or nothing at the end."""
    try:
        cells: list[str] | None = next(reader, None)
    except csv.Error as error:
        return f"not valid CSV: {error}"
    if not cells:
        return cells
    if len(cells) not in widths:
        return f"{len(cells)} cells; the first line names {widths[-1]} columns"
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "not UTF-8 text"
    return cells

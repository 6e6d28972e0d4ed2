"""CSV and TSV files: one record at a time; an invalid line does not affect the others.

The delimiter is the one that the header is cut by. By convention TSV has no quoting: a quote is a character.
"""

import csv
import shlex
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from attune.catalog import suggestion
from attune.corpora._layout import Skipped
from attune.errors import DataError

ENCODING, ERRORS = "utf-8-sig", "surrogateescape"  # how a table is opened: an invalid byte is reported with its line
DELIMITERS = (",", ";", "\t", "|")
SNIFFED_LINES = 20
SEARCHED_BYTES = 1 << 24  # for the encoding
FOREIGN_LINES = 3  # so many that are not UTF-8, and none that is, are no damage: the file has another encoding


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


def read_header(path: Path) -> list[str]:
    """The names of a table's columns."""
    with path.open(encoding=ENCODING, errors=ERRORS, newline="") as file:
        return _header(csv_reader(file, path), path, ())


def header_cells(reader: Any, path: Path) -> list[str]:
    """The cells of a table's first line."""
    try:
        names = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(
            f"The header of {path} is not valid CSV: {error}. The first line must name the columns."
        ) from error
    if not _is_text(names):
        raise DataError(f"The first line of {path} is not UTF-8 text. Save the file as UTF-8.")
    return names


def _header(reader: Any, path: Path, needed: Sequence[str]) -> list[str]:
    header = header_cells(reader, path)
    for name in needed:
        if name not in header:
            raise DataError(f"{path} has no column {name!r}{suggestion(name, header)}")
    return header


def csv_reader(file: Iterable[str], path: Path) -> Any:
    """A reader that splits the lines of a table into cells; a table in another encoding than UTF-8 is refused."""
    require_utf8(path)
    delimiter = sniff_delimiter(path)
    if path.suffix.lower() == ".tsv" and delimiter == "\t":
        return csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(file, delimiter=delimiter, strict=True)


def require_utf8(path: Path) -> None:
    """Refuse a text file in another encoding: every line with an accent would be left out as damaged."""
    with path.open("rb") as file:
        begin = file.read(SEARCHED_BYTES)
    if begin.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16 text. Save it as UTF-8, or convert it: {_conversion(path, 'UTF-16')}")
    if begin.isascii():
        return
    lines = [(number, line) for number, line in enumerate(begin.split(b"\n")[:-1], 1) if not line.isascii()]
    if len(lines) >= FOREIGN_LINES and not any(_is_utf8(line) for _, line in lines):
        raise DataError(
            f"{path} is not UTF-8 text: {len(lines)} lines have letters in another encoding, the first is line "
            f"{lines[0][0]}. Save it as UTF-8, or convert it; Western European text of Windows by: "
            f"{_conversion(path, 'WINDOWS-1252')}"
        )


def _conversion(path: Path, encoding: str) -> str:
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > NEW"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def sniff_delimiter(path: Path) -> str:
    """What separates the cells: the character that the header and most of the first lines are cut by alike."""
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding=ENCODING, errors=ERRORS, newline="") as file:
        lines = list(islice(file, SNIFFED_LINES))
    if not lines or usual == "\t" in lines[0]:
        return usual
    found = [(_evenness(lines, each), each) for each in (usual, *DELIMITERS) if each in lines[0]]
    return max(found, key=lambda each: each[0])[1] if found else usual  # of equals, the first


def _evenness(lines: Sequence[str], delimiter: str) -> tuple[bool, int]:
    """Whether most lines have as many cells as the header, and how many that is."""
    try:
        widths = [len(cells) for cells in csv.reader(lines, delimiter=delimiter) if cells]
    except csv.Error:
        return False, 0
    return 2 * widths.count(widths[0]) >= len(widths), widths[0]


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
    return cells if _is_text(cells) else "not UTF-8 text"


def _is_text(cells: Sequence[str]) -> bool:
    """Whether no cell has an invalid byte, as it was read."""
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return False
    return True

"""CSV and TSV files that are not manifests: their records by column name."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from attune.catalog import suggestion
from attune.errors import DataError


def records_of(path: Path, needed: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Every record that has a cell for each column; `needed` columns must be there."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if is_tsv(path) else csv.reader(file)
        try:
            header = [name.strip() for name in next(reader, [])]
            for name in needed:
                if name not in header:
                    raise DataError(f"{path} has no column {name!r}{suggestion(name, header)}.")
            for cells in reader:
                if cells:
                    yield dict(zip(header, [*cells, *[""] * len(header)], strict=False))
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path}, line {reader.line_num}: not a readable table: {error}") from error


def is_tsv(path: Path) -> bool:
    """Whether cells are divided by tabs; by convention nothing is quoted then, and a quote is a quote."""
    return path.suffix.lower() == ".tsv"

"""Results as files in the format of their suffix: tables, JSON, plain text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from attune.catalog import suggestion
from attune.errors import ConfigError
from attune.metrics import Json

TABLES = (".jsonl", ".json", ".csv", ".tsv", ".txt")

Row = Mapping[str, Json]


def require_format(path: Path, known: Sequence[str]) -> str:
    """The suffix of a file to write; one that is no known format is refused before anything is computed."""
    suffix = path.suffix.lower()
    if suffix not in known:
        raise ConfigError(f"--out {path}: unknown format {suffix!r}{suggestion(suffix, known)}")
    return suffix


def table_text(suffix: str, rows: Sequence[Row], columns: Sequence[str], text: str) -> str:
    """All rows as one file; tables have these columns, and plain text has the column `text` alone."""
    match suffix:
        case ".json":
            return json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n"
        case ".jsonl":
            return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        case ".csv":
            written = io.StringIO()
            writer = csv.writer(written, lineterminator="\n")
            writer.writerows([columns, *([_cell(row.get(name)) for name in columns] for row in rows)])
            return written.getvalue()
        case ".tsv":
            lines = [columns, *([_on_one_line(_cell(row.get(name))) for name in columns] for row in rows)]
            return "".join("\t".join(line) + "\n" for line in lines)
        case _:
            return "".join(_on_one_line(_cell(row.get(text))) + "\n" for row in rows)


def _cell(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _on_one_line(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())

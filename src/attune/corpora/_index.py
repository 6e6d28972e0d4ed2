"""What the first scan of a manifest found, kept so that no later run scans it again.

An index is a header, `NAME.json`, that names a table of rows and, for CSV and TSV, a copy of the rows as JSONL.
Each file is written whole and the header last, so that any number of processes may open or make the same index
at once. The folder is a cache: deleting it costs a scan.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attune.corpora._lines import jsonl_lines, table_lines
from attune.corpora._rows import read_row
from attune.corpora._scan import Fault, Seen, Table, find_duplicates, scan, see
from attune.errors import DataError
from attune.files import completed, sha256, write_text

FORMAT = 2  # raised when the files of an older version cannot be read, or say something else
SETTLED_NS = 2_000_000_000  # a file changed again within its clock's tick has the same time; a hash tells


@dataclass(frozen=True, slots=True)
class Index:
    """Where the rows of one manifest are, and which of its lines are none."""

    manifest: Seen
    sha256: str  # of the manifest
    fingerprint: str  # of the manifest and of what the scan found
    rows: Path  # the file that offsets point into
    table: Path
    faults: tuple[Fault, ...]


def load_or_scan(manifest: Path, folder: Path) -> Index:
    """The index of a manifest: the one in `folder` if it is still true, else a new one."""
    if manifest.is_dir():
        raise DataError(f"{manifest} is a folder. Give the manifest in it: a .jsonl, .csv or .tsv file.")
    if not manifest.is_file():
        raise DataError(f"There is no manifest {manifest}. Check the path under `data` in the recipe.")
    if manifest.suffix.lower() not in (".jsonl", ".csv", ".tsv"):
        raise DataError(f"Manifest {manifest} is of no known kind; expected a name that ends in .jsonl, .csv or .tsv.")
    key = hashlib.sha256(str(manifest.absolute()).encode()).hexdigest()[:12]
    header = folder.absolute() / f"{manifest.stem}-{key}.json"
    return _load(header, manifest) or _make(header, manifest)


def _load(header: Path, manifest: Path) -> Index | None:
    index = _read_header(header)
    if index is None or any(see(fault.audio.path) != fault.audio for fault in index.faults if fault.audio):
        return None
    now = see(str(manifest.absolute()))
    if now == index.manifest and header.stat().st_mtime_ns - (now.mtime_ns or 0) > SETTLED_NS:
        return index
    if now.size != index.manifest.size or sha256(manifest) != index.sha256:
        return None
    index = replace(index, manifest=now)
    _write_header(header, index)
    return index


def _make(header: Path, manifest: Path) -> Index:
    seen, digest = see(str(manifest.absolute())), sha256(manifest)
    rows = manifest.absolute()
    if manifest.suffix.lower() == ".jsonl":
        table, faults = scan(jsonl_lines(manifest), rows.parent)
    else:
        rows = header.with_name(f"{header.stem}-{digest[:12]}.jsonl")
        with _writing(rows) as copy:
            table, faults = scan(table_lines(manifest, copy), manifest.absolute().parent)
    if not len(table) and not faults:
        raise DataError(f"Manifest {manifest} has no rows. Was it written to the end?")
    table, repeats = _without_duplicates(table, rows)
    fingerprint = hashlib.sha256(digest.encode() + table.tobytes()).hexdigest()
    path = header.with_name(f"{header.stem}-{fingerprint[:12]}.npy")
    with _writing(path) as file:
        np.save(file, table)
    index = Index(seen, digest, fingerprint, rows, path, tuple(sorted(faults + repeats, key=lambda fault: fault.line)))
    _write_header(header, index)
    return index


@contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    with completed(path) as partial, partial.open("wb") as file:
        yield file


def _without_duplicates(table: Table, rows: Path) -> tuple[Table, list[Fault]]:
    with rows.open("rb") as file:

        def id_of(row: int) -> str:
            file.seek(table["offset"][row])
            return read_row(file.read(table["length"][row])).id

        pairs = find_duplicates(table["hash"], id_of)
        faults = [
            Fault(int(table["line"][row]), id_of(row), f"duplicate id, first on line {table['line'][earlier]}")
            for row, earlier in pairs
        ]
    return np.delete(table, [row for row, _ in pairs]), faults


def _write_header(header: Path, index: Index) -> None:
    write_text(header, json.dumps({"format": FORMAT, **asdict(index)}, default=str))


def _read_header(header: Path) -> Index | None:
    try:
        saved = json.loads(header.read_bytes())
        index = _index_from(saved) if saved["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged or not ours: a scan makes it new
        return None
    return index if index and index.table.is_file() and index.rows.is_file() else None


def _index_from(saved: dict[str, Any]) -> Index:
    faults = (
        Fault(fault["line"], fault["id"], fault["reason"], Seen(**fault["audio"]) if fault["audio"] else None)
        for fault in saved["faults"]
    )
    return Index(
        Seen(**saved["manifest"]),
        saved["sha256"],
        saved["fingerprint"],
        Path(saved["rows"]),
        Path(saved["table"]),
        tuple(faults),
    )

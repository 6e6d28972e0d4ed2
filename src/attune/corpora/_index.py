"""The cached result of scanning a manifest, so that later runs do not scan it again.

An index is a header, `NAME.json`, that names a table of rows and, but for JSONL, a copy of the rows as JSONL.
Each file is written atomically and the header last. Of many processes one scans, and the others wait for it and map
its table. The folder is a cache: deleting it costs a scan.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attune.corpora._blocks import blocks_of, jsonl_blocks
from attune.corpora._lines import table_lines, text_lines
from attune.corpora._rows import read_row
from attune.corpora._scan import BadLine, FileState, file_state, find_duplicates, scan
from attune.corpora._table import Table, has_table, write_table
from attune.errors import DataError
from attune.files import completed, one_at_a_time, sha256, write_text
from attune.secrets import shown, without_secrets
from attune.sources import TransferProgress, Watch, unwatched

COPIED = {".csv": table_lines, ".tsv": table_lines, ".txt": text_lines}  # read from a copy as JSONL
FORMAT = 5  # increased when the files of an older version cannot be read, or mean something else
RECORD = [("offset", "<i8"), ("length", "<i4"), ("line", "<i4"), ("seconds", "<f8"), ("hash", "<u8")]
HASHED = 1 << 16  # rows at a time
MTIME_TICK_NS = 2_000_000_000  # two changes within a clock tick have the same times; then the hash decides


@dataclass(frozen=True, slots=True)
class Index:
    """The offsets of the rows of one manifest, and its invalid lines."""

    manifest: FileState
    sha256: str  # of the manifest
    fingerprint: str  # of the manifest and of what the scan found
    rows: Path  # the file that offsets point into
    table: Path  # the folder of its columns
    bad_lines: tuple[BadLine, ...]


def load_or_scan(manifest: Path, folder: Path, watch: Watch = unwatched) -> Index:
    """The index of a manifest: the one in `folder` if it is up to date, else a new one."""
    if manifest.is_dir():
        raise DataError(f"{manifest} is a folder. Give a manifest: a .jsonl, .csv or .tsv file.")
    if not manifest.is_file():
        raise DataError(f"Manifest {manifest} does not exist. Check the paths under `data` in the recipe.")
    if manifest.suffix.lower() not in (".jsonl", *COPIED):
        raise DataError(
            f"Manifest {manifest} has an unknown format. Expected .jsonl, .csv or .tsv (or .txt for text). For others: "
            f"attune prepare auto --from {manifest} --to FOLDER."
        )
    key = hashlib.sha256(str(manifest.absolute()).encode()).hexdigest()[:12]
    header = folder.absolute() / f"{manifest.stem}-{key}.json"
    index = _load(header, manifest)
    if index:
        return index
    with one_at_a_time(header.with_suffix(".lock")):
        return _load(header, manifest) or _make(header, manifest, watch)


def _load(header: Path, manifest: Path) -> Index | None:
    index = _read_header(header)
    if index is None or any(file_state(bad.audio.path) != bad.audio for bad in index.bad_lines if bad.audio):
        return None
    now = file_state(str(manifest.absolute()))
    if now == index.manifest and header.stat().st_mtime_ns - (now.ctime_ns or 0) > MTIME_TICK_NS:
        return index
    if now.size != index.manifest.size or sha256(manifest) != index.sha256:
        return None
    index = replace(index, manifest=now)
    _write_header(header, index)
    return index


def _make(header: Path, manifest: Path, watch: Watch) -> Index:
    state, digest = file_state(str(manifest.absolute())), sha256(manifest)
    rows, folder = manifest.absolute(), manifest.absolute().parent

    def show(done: int) -> None:
        watch(TransferProgress(str(manifest), min(done, state.size or 0), state.size, verb="scanning"))

    if manifest.suffix.lower() == ".jsonl":
        table, bad_lines = scan(jsonl_blocks(manifest), folder, show)
    else:
        rows = header.with_name(f"{header.stem}-{digest[:12]}.jsonl")
        with _writing(rows) as copy:
            table, bad_lines = scan(blocks_of(COPIED[manifest.suffix.lower()](manifest, copy)), folder, show)
    show(state.size or 0)
    if not len(table) and not bad_lines:
        raise DataError(f"Manifest {manifest} has no rows. Prepare it again.")
    table, duplicates = _without_duplicates(table, rows)
    fingerprint = _fingerprint(digest, table)
    path = header.with_name(f"{header.stem}-{fingerprint[:12]}")
    write_table(table, path)
    bad_lines = sorted(map(_without_secrets, bad_lines + duplicates), key=lambda bad: bad.line)
    index = Index(state, digest, fingerprint, rows, path, tuple(bad_lines))
    _write_header(header, index)
    return index


def _fingerprint(digest: str, table: Table) -> str:
    """Of the rows one after the other, as tables were once kept: runs that began then can go on."""
    found = hashlib.sha256(digest.encode())
    for start in range(0, len(table), HASHED):
        columns = {name: column[start : start + HASHED] for name, column in table.columns().items()}
        rows = np.empty(len(columns["line"]), RECORD)
        for name, column in columns.items():
            rows[name] = column
        found.update(rows.tobytes())
    return found.hexdigest()


@contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    with completed(path) as partial, partial.open("wb") as file:
        yield file


def _without_duplicates(table: Table, rows: Path) -> tuple[Table, list[BadLine]]:
    with rows.open("rb") as file:

        def id_of(row: int) -> str:
            file.seek(table.offset[row])
            return read_row(file.read(table.length[row])).id

        pairs = find_duplicates(table.hash, id_of)
        bad_lines = [
            BadLine(int(table.line[row]), id_of(row), f"duplicate id, first on line {table.line[earlier]}")
            for row, earlier in pairs
        ]
    if not pairs:
        return table, []
    doomed = [row for row, _ in pairs]
    return Table(*(np.delete(column, doomed) for column in table.columns().values())), bad_lines


def _without_secrets(bad: BadLine) -> BadLine:
    audio = replace(bad.audio, path=shown(bad.audio.path)) if bad.audio else None
    return BadLine(bad.line, without_secrets(bad.id) if bad.id else bad.id, without_secrets(bad.reason), audio)


def _write_header(header: Path, index: Index) -> None:
    write_text(header, json.dumps({"format": FORMAT, **asdict(index)}, default=str))


def _read_header(header: Path) -> Index | None:
    try:
        saved = json.loads(header.read_bytes())
        index = _index_from(saved) if saved["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged or not ours: scan again
        return None
    return index if index and has_table(index.table) and index.rows.is_file() else None


def _index_from(saved: dict[str, Any]) -> Index:
    bad_lines = (
        BadLine(bad["line"], bad["id"], bad["reason"], FileState(**bad["audio"]) if bad["audio"] else None)
        for bad in saved["bad_lines"]
    )
    return Index(
        FileState(**saved["manifest"]),
        saved["sha256"],
        saved["fingerprint"],
        Path(saved["rows"]),
        Path(saved["table"]),
        tuple(bad_lines),
    )

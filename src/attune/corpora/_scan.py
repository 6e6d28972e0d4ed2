"""The one pass over a manifest: which lines are good rows, where they lie, how long their audio is.

A row costs 32 bytes of memory, so that a manifest of millions of rows is no burden.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from attune.audio.decode import audio_seconds
from attune.corpora._lines import Line
from attune.corpora._rows import BadRow, Row, read_row
from attune.errors import DataError
from attune.sources import content_of, is_address
from attune.types import Utterance

TABLE = np.dtype([("offset", "<i8"), ("length", "<i4"), ("line", "<i4"), ("seconds", "<f8"), ("hash", "<u8")])
Table = npt.NDArray[np.void]

CHUNK = 8192  # rows whose audio files are looked at together
THREADS = 8  # looking at a file is mostly waiting for a disk or a network


@dataclass(frozen=True, slots=True)
class Seen:
    """How a file looked; not the same again means that it has come, gone or changed."""

    path: str
    size: int | None = None  # None: there was no such file
    mtime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A line that is not a row. `audio` is the file that is to blame, where it is not the line itself."""

    line: int
    id: str | None
    reason: str
    audio: Seen | None = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a row's audio cannot be used, and how it looked."""

    reason: str
    audio: Seen


def scan(lines: Iterable[Line], folder: Path) -> tuple[Table, list[Fault]]:
    """Check every line but for duplicate ids; audio paths are relative to `folder`."""
    parts = [np.empty(0, TABLE)]
    faults: list[Fault] = []
    lines = iter(lines)
    with ThreadPoolExecutor(THREADS) as pool:
        while chunk := list(islice(lines, CHUNK)):
            rows = list(_read(chunk, faults))
            looks = pool.map(partial(_look_at, folder), _split([row for _, row in rows], THREADS))
            found = [seconds for part in looks for seconds in part]
            parts.append(np.array(list(_entries(rows, found, faults)), TABLE))
    return np.concatenate(parts), faults


def hash_id(id: str) -> int:
    """64 bits that stand for an id; the same on every machine."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest(), "little")


def find_duplicates(hashes: npt.NDArray[np.uint64], id_of: Callable[[int], str]) -> list[tuple[int, int]]:
    """Each row whose id an earlier row has, with that row; equal hashes are a suspicion, equal ids the proof."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    first: dict[str, int] = {}
    suspects = np.flatnonzero(np.isin(hashes, repeated)).tolist()
    pairs = [(row, first.setdefault(id_of(row), row)) for row in suspects]
    return [(row, earlier) for row, earlier in pairs if row != earlier]


def see(path: str) -> Seen:
    """How a file looks now."""
    try:
        status = os.stat(path)  # noqa: PTH116  # as fast as can be: done for every row
    except (OSError, ValueError):  # ValueError: a path no system could have
        return Seen(path)
    return Seen(path, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else Seen(path)


def audio_path(folder: Path, audio: str) -> str:
    """Where an audio path of a manifest in `folder` leads."""
    return audio if is_address(audio) else os.path.join(folder, audio)  # noqa: PTH118  # as above


def _read(lines: Iterable[Line], faults: list[Fault]) -> Iterator[tuple[Line, Row]]:
    for line in lines:
        try:
            if line.fault:
                raise BadRow(line.fault)
            yield line, read_row(line.content)
        except BadRow as bad:
            faults.append(Fault(line.number, bad.id, str(bad)))


def _split(rows: Sequence[Row], parts: int) -> list[Sequence[Row]]:
    size = max(1, -(-len(rows) // parts))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _look_at(folder: Path, rows: Iterable[Row]) -> list[float | Unusable]:
    return [look_at(row, folder) for row in rows]


def look_at(row: Row, folder: Path) -> float | Unusable:
    """The seconds of a row's audio, by the row or by the file's header, or why it cannot be used."""
    if row.audio is None:
        return 0.0
    audio = audio_path(folder, row.audio)
    seen = Seen(audio) if is_address(audio) else see(audio)
    if not seen.size and not is_address(audio):
        return Unusable(f"{'missing' if seen.size is None else 'empty'} audio file {seen.path}", seen)
    if seen.size and (row.first_byte or 0) + (row.byte_count or 0) > seen.size:
        return Unusable(f"{seen.path} is cut off or changed: it ends before the recording does", seen)
    if row.seconds is not None:
        return row.seconds
    try:
        seconds = measure(row, audio) - (row.start or 0.0)
    except DataError as error:
        return Unusable(str(error), seen)
    return seconds if seconds > 0 else Unusable(f"start is {row.start}, beyond the end of {seen.path}", seen)


def measure(row: Row, audio: str) -> float:
    """How long the whole recording is that a row names, by its header."""
    return audio_seconds(audio, content_of(utterance_of(row, audio, 0.0)))


def utterance_of(row: Row, audio: str | None, seconds: float, where: str = "") -> Utterance:
    """The row as an utterance; `audio` is where its path leads."""
    return Utterance(
        id=row.id,
        seconds=seconds,
        audio=audio if audio is None or is_address(audio) else Path(audio),
        start=row.start,
        text=row.text,
        speaker=row.speaker,
        language=row.language,
        labels=row.labels,
        where=where,
        channel=row.channel,
        first_byte=row.first_byte,
        byte_count=row.byte_count,
        row=row.row,
    )


def _entries(
    rows: Iterable[tuple[Line, Row]], found: Iterable[float | Unusable], faults: list[Fault]
) -> Iterator[tuple[int, int, int, float, int]]:
    for (line, row), seconds in zip(rows, found, strict=True):
        if isinstance(seconds, Unusable):
            faults.append(Fault(line.number, row.id, seconds.reason, seconds.audio))
        else:
            yield line.offset, len(line.content), line.number, seconds, hash_id(row.id)

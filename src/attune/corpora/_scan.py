"""The one pass over a manifest: which lines are valid rows, their offsets, and the durations of their audio.

A row costs 36 bytes of memory, so that a manifest may have millions of rows.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from attune.audio.decode import audio_seconds
from attune.corpora._blocks import Block
from attune.corpora._lines import Line
from attune.corpora._plain_rows import PlainRow, read_plain, read_plain_lines
from attune.corpora._rows import BadRow, Row, read_row
from attune.corpora._table import Table, TableBuilder, table_of
from attune.errors import DataError
from attune.sources import content_of, is_address
from attune.types import Utterance

AnyRow = Row | PlainRow
T = TypeVar("T")

CHUNK = 8192  # rows whose audio files are looked at together
REMEMBERED = 1 << 16  # audio files that are not looked at again when another row names them
THREADS = 8  # probing a file is mostly waiting for a disk or a network


@dataclass(frozen=True, slots=True)
class FileState:
    """Size and times of a file; a difference means that it was created, removed or changed.

    The time of the last status change cannot be set back, as that of the last modification can.
    """

    path: str
    size: int | None = None  # None: the file does not exist
    mtime_ns: int | None = None
    ctime_ns: int | None = None


@dataclass(frozen=True, slots=True)
class BadLine:
    """An invalid line. `audio` is set if the audio file is the problem, not the line itself."""

    line: int
    id: str | None
    reason: str
    audio: FileState | None = None


@dataclass(frozen=True, slots=True)
class BadAudio:
    """Why a row's audio cannot be used, and the state of its file."""

    reason: str
    audio: FileState


def scan(blocks: Iterable[Block], folder: Path, done: Callable[[int], None]) -> tuple[Table, list[BadLine]]:
    """Validate every line, except for duplicate ids; audio paths are relative to `folder`.

    `done` learns how far the scan is, in bytes.
    """
    table, bad_lines = TableBuilder(), list[BadLine]()
    states: dict[str, FileState] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for block in blocks:
            done(block.offset)
            if len(states) > REMEMBERED:
                states.clear()
            rows = _plain_table(pool, block, folder, states)
            if rows is None:  # something in the block is unusual, or wrong
                read = list(_read(block.lines(), bad_lines))
                found = _probe_together(pool, [row for _, row in read], folder, states)
                rows = table_of(list(_entries(read, found, bad_lines)))
            table.add(rows)
    return table.build(), bad_lines


def _plain_table(pool: ThreadPoolExecutor, block: Block, folder: Path, states: dict[str, FileState]) -> Table | None:
    """The rows of a block of usual lines, all of whose audio is there."""
    rows = None if block.problems else read_plain_lines(block.content, len(block.numbers))
    if rows is None:
        return None
    named = set(rows.audio) - {None}
    _find_together(pool, [each for each in named if each is not None and each not in states], folder, states)
    here = [states[each] for each in named if each and not is_address(states[each].path)]
    if not all(state.size for state in here) or any(end > (states[each].size or end) for each, end in rows.packed):
        return None
    hashes = b"".join(hashlib.blake2b(id.encode(), digest_size=8).digest() for id in rows.ids)
    seconds = np.array(rows.seconds, np.float64)
    return Table(block.offsets, block.lengths, block.numbers, seconds, np.frombuffer(hashes, "<u8"))


def hash_id(id: str) -> int:
    """A 64-bit hash of an id, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(id.encode(), digest_size=8).digest(), "little")


def find_duplicates(hashes: npt.NDArray[np.uint64], id_of: Callable[[int], str]) -> list[tuple[int, int]]:
    """Each row with a duplicate id, with the first row of that id; candidates by hash, confirmed by id."""
    ordered = np.sort(hashes)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    del ordered
    if not len(repeated):
        return []
    first: dict[str, int] = {}
    suspects = np.flatnonzero(np.isin(hashes, repeated)).tolist()
    pairs = [(row, first.setdefault(id_of(row), row)) for row in suspects]
    return [(row, earlier) for row, earlier in pairs if row != earlier]


def file_state(path: str) -> FileState:
    """The current state of a file."""
    try:
        status = os.stat(path)  # noqa: PTH116  # as fast as can be: done for every row
    except (OSError, ValueError):  # ValueError: a path no system could have
        return FileState(path)
    if not stat.S_ISREG(status.st_mode):
        return FileState(path)
    return FileState(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def resolve_audio(folder: Path, audio: str) -> str:
    """The absolute path of an audio path of a manifest in `folder`; URLs are unchanged."""
    return audio if is_address(audio) else os.path.join(folder, audio)  # noqa: PTH118  # as above


def _read(lines: Iterable[Line], bad_lines: list[BadLine]) -> Iterator[tuple[Line, AnyRow]]:
    for line in lines:
        try:
            if line.problem:
                raise BadRow(line.problem)
            yield line, read_plain(line.content) or read_row(line.content)
        except BadRow as bad:
            bad_lines.append(BadLine(line.number, bad.id, str(bad)))


def _probe_together(
    pool: ThreadPoolExecutor, rows: Sequence[AnyRow], folder: Path, states: dict[str, FileState]
) -> list[float | BadAudio]:
    """Probe the rows; threads do only what waits for a disk or a network. A recording may have many rows."""
    unknown = list(dict.fromkeys(row.audio for row in rows if row.audio and row.audio not in states))
    _find_together(pool, unknown, folder, states)
    probe = partial(_probe_all, states)
    if all(row.seconds is not None or row.audio is None for row in rows):
        return probe(rows)
    return [seconds for part in pool.map(probe, _split(rows, THREADS)) for seconds in part]


def _find_together(
    pool: ThreadPoolExecutor, unknown: Sequence[str], folder: Path, states: dict[str, FileState]
) -> None:
    for part in pool.map(partial(_find_all, folder), _split(unknown, THREADS)):
        states.update(part)


def _split(items: Sequence[T], parts: int) -> list[Sequence[T]]:
    size = max(1, -(-len(items) // parts))
    return [items[start : start + size] for start in range(0, len(items), size)]


def _find_all(folder: Path, audio: Sequence[str]) -> dict[str, FileState]:
    return {each: _find_audio(folder, each) for each in audio}


def _find_audio(folder: Path, audio: str) -> FileState:
    """The file of an audio path in a manifest; nothing is asked of an address."""
    resolved = resolve_audio(folder, audio)
    return FileState(resolved) if is_address(resolved) else file_state(resolved)


def _probe_all(states: Mapping[str, FileState], rows: Iterable[AnyRow]) -> list[float | BadAudio]:
    return [_probe(row, states[row.audio]) if row.audio else 0.0 for row in rows]


def probe_audio(row: Row, folder: Path) -> float | BadAudio:
    """The seconds of a row's audio, from the row or from the file's header, or why it cannot be used."""
    return _probe(row, _find_audio(folder, row.audio)) if row.audio else 0.0


def _probe(row: AnyRow, state: FileState) -> float | BadAudio:
    if not state.size and not is_address(state.path):
        return BadAudio(f"{'missing' if state.size is None else 'empty'} audio file {state.path}", state)
    if state.size and (row.first_byte or 0) + (row.byte_count or 0) > state.size:
        return BadAudio(f"{state.path} is truncated or changed: it ends before the recording does", state)
    if row.seconds is not None or isinstance(row, PlainRow):
        return row.seconds or 0.0
    try:
        seconds = recording_seconds(row, state.path) - (row.start or 0.0)
    except DataError as error:
        return BadAudio(str(error), state)
    return seconds if seconds > 0 else BadAudio(f"start is {row.start}, beyond the end of {state.path}", state)


def recording_seconds(row: Row, audio: str) -> float:
    """The duration of a row's whole recording, from its header."""
    return audio_seconds(audio, content_of(to_utterance(row, audio, 0.0)))


def to_utterance(row: Row, audio: str | None, seconds: float, where: str = "", folder: Path = Path()) -> Utterance:
    """The row as an utterance; `audio` is its resolved path, and `folder` what its signals are relative to."""
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
        signals={role: folder / path for role, path in row.signals.items()},
        segments=row.segments,
        phrases=row.phrases,
    )


def _entries(
    rows: Iterable[tuple[Line, AnyRow]], found: Iterable[float | BadAudio], bad_lines: list[BadLine]
) -> Iterator[tuple[int, int, int, float, int]]:
    for (line, row), seconds in zip(rows, found, strict=True):
        if isinstance(seconds, BadAudio):
            bad_lines.append(BadLine(line.number, row.id, seconds.reason, seconds.audio))
        else:
            yield line.offset, len(line.content), line.number, seconds, hash_id(row.id)

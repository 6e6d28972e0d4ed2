"""Whether a corpus is still what its manifests were written from: its rows, and the size and time of its files."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from attune.corpora._layout import RowOrSkipped, Skipped
from attune.corpora._rows import Row, read_row, write_row
from attune.sources import is_address

NAMED = 3  # ids in a message


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What was read of a split: how many entries, and a hash of them and of the state of their files."""

    entries: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """For the summary of a split."""
        return {"entries": self.entries, "sha256": self.sha256}


class Reading:
    """Entries on their way from the corpus; knows their fingerprint once all have passed.

    Hashes of single rows, which only say what has changed, are kept for a split that was prepared before.
    """

    def __init__(self, found: Iterable[RowOrSkipped], to: Path, keeps_rows: bool = False) -> None:
        self._found, self._to, self._keeps_rows = found, to.absolute(), keeps_rows
        self._digest = hashlib.sha256()
        self._entries = 0
        self._state = cache(file_stamp)
        self.rows: dict[int, int] = {}  # hash of the id → hash of the row

    def __iter__(self) -> Iterator[RowOrSkipped]:
        for item in self._found:
            self._entries += 1
            text = f"{item.which!a} {item.reason!a}" if isinstance(item, Skipped) else self._describe(item)
            self._digest.update(f"{text}\n".encode(errors="surrogatepass"))
            yield item

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the entries so far."""
        return Fingerprint(self._entries, self._digest.hexdigest())

    def _describe(self, row: Row) -> str:
        if self._keeps_rows:
            self.rows[hash(row.id)] = _hash(row, self._to)
        path = Path(self._to, row.audio) if row.audio and not is_address(row.audio) else None
        # What `prepare` itself wrote there is no part of the corpus.
        state = self._state(path) if path and not path.is_relative_to(self._to) else ""
        return f"{write_row(row)} {state}"


def describe_changes(reading: Reading, before: int, manifest: Path) -> str:
    """What is different from a manifest that was written earlier, in words."""
    entries = reading.fingerprint.entries
    parts = [f"{before:,} → {entries:,} entries"] if before != entries else []
    gone, changed = [], []
    with manifest.open("rb") as file:
        for row in map(read_row, file):
            now = reading.rows.get(hash(row.id))
            if now is None:
                gone.append(row.id)
            elif now != _hash(row, manifest.parent.absolute()):
                changed.append(row.id)
    parts += [
        f"{len(ids):,} {what}: {', '.join(ids[:NAMED])}" for what, ids in (("gone", gone), ("changed", changed)) if ids
    ]
    return "; ".join(parts) or "other audio files, or entries that are skipped"


def _hash(row: Row, to: Path) -> int:
    """Of all but the seconds, which are measured, and of the audio path from anywhere."""
    audio = str(Path(to, row.audio)) if row.audio and not is_address(row.audio) else row.audio
    return hash(write_row(replace(row, audio=audio, seconds=None)))


def file_stamp(path: Path) -> str:
    """The size and time of a file, which are others when it is."""
    try:
        state = path.stat()
    except (OSError, ValueError):  # ValueError: a path that no system could have
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"

"""What a corpus plug-in exports: how the files of a corpus, as its makers hand it out, become rows of manifests."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attune.corpora._rows import Row
from attune.errors import DataError

AUDIO_FILES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".sph", ".aiff", ".au")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in the corpus that becomes no row: which, and why; reasons are counted, so they name no one."""

    which: str
    reason: str


Found = Row | Skipped


@dataclass(frozen=True, slots=True)
class NoOptions:
    """A corpus that is read in one way only."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a corpus is, and the folder of its manifests: what must be converted or copied may be put there."""

    source: str
    to: Path

    @property
    def folder(self) -> Path:
        """The source as a path on this machine."""
        return Path(self.source).absolute()


@dataclass(frozen=True, slots=True)
class Layout:
    """How a corpus lies on disk. `corpora/NAME.py` exports one as CORPUS.

    `read(place, options)` gives the rows of each split. Nothing is read before a split is gone through, so that a
    finished one costs nothing. `audio` of a row is an absolute path or an address; `seconds` may be absent, and is
    then measured. What is far away is fetched first, unless the corpus `takes_addresses` and reads them in place.
    """

    read: Callable[[Place, Any], Mapping[str, Iterable[Found]]]
    options: type = NoOptions
    speakers_apart: bool = False  # whether no two splits share a speaker
    takes_addresses: bool = False


def one_of(place: Place, *names: str) -> Path:
    """The first of these folders or files that is there, below the source; `.` is the source itself."""
    for name in names:
        if (place.folder / name).exists():
            return place.folder / name
    raise DataError(f"{place.source} has no {' and no '.join(names)}. Is it the folder that the corpus unpacks to?")


def files_below(folder: Path, *suffixes: str) -> Iterator[Path]:
    """All files with these endings, in an order that is the same everywhere; hidden ones are left out."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(suffixes) and not name.startswith("."):
                yield Path(parent, name)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file that are not blank, without line ends."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                if line.strip():
                    yield line.rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}. Is the corpus unpacked as a whole?") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}.") from error


def pairs_of(path: Path, fields: int = 2) -> Iterator[Sequence[str]]:
    """The lines of a text file cut at white space into so many fields; the last has the rest, or is empty."""
    for line in lines_of(path):
        cut = line.split(maxsplit=fields - 1)
        yield [*cut, *[""] * (fields - len(cut))]


def number_of(text: str) -> float | None:
    """The number that a field holds, if it does."""
    try:
        return float(text)
    except ValueError:
        return None


def slice_of(row: Row, start: str | float, end: str | float) -> Found:
    """The row as the part of its recording from `start` to `end`, both as written."""
    begin, stop = number_of(str(start)), number_of(str(end))
    if begin is None or stop is None or not 0 <= begin < stop:
        return Skipped(f"{row.id}: {start} to {end}", "times that make no segment")
    return replace(row, start=begin, seconds=round(stop - begin, 6))

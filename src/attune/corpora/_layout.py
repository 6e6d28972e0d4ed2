"""What a corpus plug-in exports: how the files of a published corpus become rows of manifests."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from attune import catalog
from attune.audio import containers
from attune.corpora._rows import Row
from attune.errors import DataError

AUDIO_FILES = containers.ALL_SUFFIXES

# A list of names, or one alone: `labels=digit` is `labels='[digit]'`.
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry of the corpus that becomes no row, and why; equal reasons are counted, so a reason names no entry."""

    which: str
    reason: str


RowOrSkipped = Row | Skipped


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a corpus that has none."""


@dataclass(frozen=True, slots=True)
class CorpusPaths:
    """Where a corpus is, and the folder of its manifests, where converted or copied audio may be written too."""

    source: str
    to: Path

    @property
    def folder(self) -> Path:
        """The source as a path on this machine."""
        return Path(self.source).absolute()


@dataclass(frozen=True, slots=True)
class Layout:
    """How the files of a corpus are laid out. `corpora/NAME.py` exports one as CORPUS.

    `read(corpus, options)` returns the rows of each split, lazily, so that a finished split costs nothing. `audio` of a
    row is an absolute path or a URL; `seconds` is measured if it is absent. A remote source is downloaded first, unless
    the corpus `takes_addresses` and reads URLs in place. `notes(corpus, options)` says how the source was understood,
    `count(corpus, options)` about how many entries it has, where that is quick to find out.
    """

    read: Callable[[CorpusPaths, Any], Mapping[str, Iterable[RowOrSkipped]]]
    options: type = NoOptions
    speakers_apart: bool = False  # no two splits share a speaker
    takes_addresses: bool = False
    notes: Callable[[CorpusPaths, Any], Iterable[str]] | None = None
    count: Callable[[CorpusPaths, Any], int] | None = None
    choose: Callable[[Sequence[str], Any], Sequence[str]] | None = None  # the files that are needed of a remote source


def count_lines(paths: Iterable[Path]) -> int:
    """The lines of text files, without decoding them."""
    total = 0
    for path in paths:
        last = b"\n"
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                total += block.count(b"\n")
                last = block
        total += not last.endswith(b"\n")
    return total


CORPORA: catalog.Kind[Layout] = catalog.Kind("corpora", "CORPUS")


def first_existing(corpus: CorpusPaths, *names: str) -> Path:
    """The first of these folders or files that exists below the source; `.` is the source itself."""
    for name in names:
        if (corpus.folder / name).exists():
            return corpus.folder / name
    raise DataError(f"{corpus.source} has no {' and no '.join(names)}. Give --from the folder of the unpacked corpus.")


def find_files(folder: Path, *suffixes: str) -> Iterator[Path]:
    """All files with these suffixes, recursively, in sorted order; hidden ones are skipped."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(suffixes) and not name.startswith("."):
                yield Path(parent, name)


def read_lines(path: Path) -> Iterator[str]:
    """The non-blank lines of a text file, without line ends."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                if line.strip():
                    yield line.rstrip("\r\n")
    except OSError as error:
        raise DataError(
            f"Cannot read {path}: {error.strerror}. Check that the corpus is unpacked completely."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}.") from error


def read_fields(path: Path, fields: int = 2) -> Iterator[Sequence[str]]:
    """The lines of a text file, split at white space into `fields` fields; the last has the rest, or is empty."""
    for line in read_lines(path):
        cut = line.split(maxsplit=fields - 1)
        yield [*cut, *[""] * (fields - len(cut))]


def parse_float(text: str) -> float | None:
    """The number in a field, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def cut_segment(row: Row, start: str | float, end: str | float) -> RowOrSkipped:
    """The row as the segment of its recording from `start` to `end`, both as written in the corpus."""
    begin, stop = parse_float(str(start)), parse_float(str(end))
    if begin is None or stop is None or not 0 <= begin < stop:
        return Skipped(f"{row.id}: {start} to {end}", "invalid segment times")
    return replace(row, start=begin, seconds=round(stop - begin, 6))

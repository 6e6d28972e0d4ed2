"""Manifests as sequences of utterances, each read from its line on access.

Objects hold no open files and pickle as a few paths, so that sending them to workers is cheap.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from attune.corpora._index import Index, load_or_scan
from attune.corpora._rows import BadRow, read_row
from attune.corpora._scan import find_duplicates, hash_id, resolve_audio, to_utterance
from attune.corpora._table import open_table
from attune.errors import DataError
from attune.sources import Watch, unwatched
from attune.types import Utterance

Column = TypeVar("Column", np.float64, np.uint64)


@dataclass(frozen=True, slots=True)
class RowProblem:
    """An invalid row: manifest and line, its id if it has one, and the reason."""

    where: str
    id: str | None
    reason: str


def open_manifest(path: Path, index_folder: Path, watch: Watch = unwatched) -> "Manifest":
    """A manifest (.jsonl, .csv, .tsv); opening it the first time scans it and writes an index to `index_folder`."""
    return Manifest(path, load_or_scan(path, index_folder, watch))


def open_corpus(name: str, paths: Sequence[Path], index_folder: Path, watch: Watch = unwatched) -> "Corpus":
    """Several manifests, concatenated; a row whose id is in an earlier manifest is a problem.

    `watch` gets how far a first scan is.
    """
    if not paths or len(set(paths)) < len(paths):
        raise DataError(f"`{name}` needs one or more manifests, each once. Found: {[str(path) for path in paths]}.")
    manifests = [open_manifest(path, index_folder, watch) for path in paths]
    return Corpus(name, manifests, _find_duplicates(manifests))


class Manifest:
    """The valid rows of one manifest, in its order; the others are `problems`."""

    def __init__(self, path: Path, index: Index) -> None:
        self.path = path
        self.sha256 = index.sha256
        self.fingerprint = index.fingerprint
        self.problems = tuple(RowProblem(f"{path}:{bad.line}", bad.id, bad.reason) for bad in index.bad_lines)
        self._index = index
        self._folder = path.absolute().parent
        self._table = open_table(index.table)
        self.seconds: npt.NDArray[np.float64] = self._table.seconds

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """64 bits for each row's id."""
        return self._table.hash

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, row: int) -> Utterance:
        with self._opened() as file:
            return self._read(file, row)

    def __iter__(self) -> Iterator[Utterance]:
        with self._opened() as file:
            for row in range(len(self)):
                yield self._read(file, row)

    def __reduce__(self) -> tuple[Any, ...]:
        return Manifest, (self.path, self._index)

    def _opened(self) -> BinaryIO:
        try:
            return self._index.rows.open("rb")
        except OSError as error:
            raise self._changed() from error

    def _read(self, file: BinaryIO, row: int) -> Utterance:
        table = self._table
        file.seek(table.offset[row])
        try:
            found = read_row(file.read(table.length[row]))
        except BadRow as error:
            raise self._changed() from error
        if hash_id(found.id) != table.hash[row]:
            raise self._changed()
        audio = resolve_audio(self._folder, found.audio) if found.audio else None
        where = f"{self.path}:{table.line[row]}"
        return to_utterance(found, audio, float(table.seconds[row]), where, self._folder)

    def _changed(self) -> DataError:
        return DataError(f"{self._index.rows} was changed or removed while in use. Run the command again.")


class Corpus:
    """Several manifests as one sequence of rows. `fingerprint` changes when any row or its validity does."""

    def __init__(self, name: str, manifests: Sequence[Manifest], duplicates: Mapping[int, RowProblem]) -> None:
        self.name = name
        self.problems = tuple(problem for manifest in manifests for problem in manifest.problems) + tuple(
            duplicates.values()
        )
        self.fingerprint = hashlib.sha256("".join(part.fingerprint for part in manifests).encode()).hexdigest()
        self.seconds = _joined([part.seconds for part in manifests], list(duplicates))
        self._manifests = manifests
        self._find_duplicates = duplicates
        self._ends = np.cumsum([len(manifest) for manifest in manifests])
        # The number of valid rows before each duplicate.
        self._before = np.array(sorted(duplicates), np.int64) - np.arange(len(duplicates))

    @property
    def parts(self) -> dict[str, str]:
        """The fingerprint of each manifest, by its name among `sets`."""
        return {name: part.fingerprint for name, part in zip(self.sets, self._manifests, strict=True)}

    @property
    def sets(self) -> tuple[str, ...]:
        """A name for each manifest: the file's, with as much of its folder as makes it unique."""
        paths = [manifest.path.absolute().with_suffix("") for manifest in self._manifests]
        for depth in range(1, max(len(path.parts) for path in paths) + 1):
            names = tuple("/".join(path.parts[-depth:]) for path in paths)
            if len(set(names)) == len(names):
                return names
        return tuple(str(manifest.path) for manifest in self._manifests)

    @property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """64 bits for each row's id."""
        return _joined([part.hashes for part in self._manifests], list(self._find_duplicates))

    @property
    def origins(self) -> npt.NDArray[np.int64]:
        """The index of each row's manifest."""
        every = np.repeat(np.arange(len(self._manifests)), [len(manifest) for manifest in self._manifests])
        return np.delete(every, list(self._find_duplicates))

    def __len__(self) -> int:
        return len(self.seconds)

    def __getitem__(self, row: int) -> Utterance:
        row = range(len(self))[row]
        return _row_of(self._manifests, self._ends, row + int(np.searchsorted(self._before, row, side="right")))

    def __iter__(self) -> Iterator[Utterance]:
        utterances = (utterance for manifest in self._manifests for utterance in manifest)
        return (utterance for position, utterance in enumerate(utterances) if position not in self._find_duplicates)

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus, (self.name, self._manifests, self._find_duplicates)


def _joined(columns: Sequence[npt.NDArray[Column]], doomed: Sequence[int]) -> npt.NDArray[Column]:
    """Columns one after the other, without some rows; a single one is not copied into this process's memory."""
    column = columns[0] if len(columns) == 1 else np.concatenate(columns)
    return np.delete(column, doomed) if len(doomed) else column


def _row_of(manifests: Sequence[Manifest], ends: npt.NDArray[np.int64], position: int) -> Utterance:
    which = int(np.searchsorted(ends, position, side="right"))
    return manifests[which][position - int(ends[which])]


def _find_duplicates(manifests: Sequence[Manifest]) -> dict[int, RowProblem]:
    """Positions, in the concatenated manifests, of rows with a duplicate id."""
    if len(manifests) == 1:
        return {}
    ends = np.cumsum([len(manifest) for manifest in manifests])

    def at(position: int) -> Utterance:
        return _row_of(manifests, ends, position)

    pairs = find_duplicates(np.concatenate([part.hashes for part in manifests]), lambda position: at(position).id)
    return {
        row: RowProblem(at(row).where, at(row).id, f"duplicate id, first at {at(earlier).where}")
        for row, earlier in pairs
    }

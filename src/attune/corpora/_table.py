"""The rows of a manifest as columns, one file each, which all processes of a node map into the same memory."""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from attune.files import write_array

TYPES = {"offset": "<i8", "length": "<i4", "line": "<i8", "seconds": "<f8", "hash": "<u8"}


@dataclass(frozen=True, slots=True)
class Table:
    """Where each row is, in bytes and lines, how long its audio is, and 64 bits of its id."""

    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]
    line: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    hash: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.offset)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """The columns by name, always in the same order."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


class TableBuilder:
    """Grows by some rows at a time, and never has a row twice in memory."""

    def __init__(self) -> None:
        self._columns = {name: bytearray() for name in TYPES}

    def add(self, rows: Table) -> None:
        """These rows are the next."""
        for name, column in rows.columns().items():
            self._columns[name] += column.astype(TYPES[name], copy=False).tobytes()

    def build(self) -> Table:
        """All rows."""
        return Table(*(np.frombuffer(self._columns[name], type) for name, type in TYPES.items()))


def table_of(rows: list[tuple[int, int, int, float, int]]) -> Table:
    """A table of rows that are given one by one."""
    columns = zip(*rows, strict=True) if rows else [()] * len(TYPES)
    return Table(*(np.array(column, type) for column, type in zip(columns, TYPES.values(), strict=True)))


def write_table(table: Table, folder: Path) -> None:
    """Write the columns; a file that is there is complete."""
    for name, column in table.columns().items():
        write_array(folder / f"{name}.npy", column)


def open_table(folder: Path) -> Table:
    """The columns, read when they are used, and kept once for all processes."""
    return Table(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in TYPES))


def has_table(folder: Path) -> bool:
    """Whether every column is there."""
    return all((folder / f"{name}.npy").is_file() for name in TYPES)

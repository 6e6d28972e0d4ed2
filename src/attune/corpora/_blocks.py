"""Many lines of a manifest at a time: to look at each by itself costs more than to read it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from attune.corpora._lines import Line

BYTES = 1 << 18  # of a JSONL file, up to the end of a line
LINES = 2048  # of other files
NEWLINE = 10


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that follow one another in the file that offsets point into, and records that did not become lines."""

    offset: int
    content: bytes
    numbers: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    problems: tuple[Line, ...] = ()

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each line begins."""
        return self.offset + np.cumsum(self.lengths, dtype=np.int64) - self.lengths

    def lines(self) -> Iterator[Line]:
        """The lines one by one, without blank ones."""
        yield from self.problems
        for number, offset, length in zip(
            self.numbers.tolist(), self.offsets.tolist(), self.lengths.tolist(), strict=True
        ):
            start = offset - self.offset
            content = self.content[start : start + length]
            if not content.isspace():
                yield Line(number, offset, content)


def jsonl_blocks(path: Path) -> Iterator[Block]:
    """The lines of a JSONL file."""
    offset, number, rest = 0, 1, b""
    with path.open("rb") as file:
        while read := file.read(BYTES):
            whole, newline, rest = (rest + read).rpartition(b"\n")
            if newline:
                block = _block(offset, number, whole + newline)
                yield block
                offset, number = offset + len(block.content), number + len(block.numbers)
        if rest:
            yield _block(offset, number, rest)


def _block(offset: int, number: int, content: bytes) -> Block:
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == NEWLINE) + 1
    if not content.endswith(b"\n"):
        ends = np.append(ends, len(content))
    lengths = np.diff(ends, prepend=0).astype(np.int32)
    return Block(offset, content, np.arange(number, number + len(ends), dtype=np.int64), lengths)


def blocks_of(lines: Iterable[Line]) -> Iterator[Block]:
    """Lines that are given one by one."""
    lines = iter(lines)
    while chunk := list(islice(lines, LINES)):
        good = [line for line in chunk if line.problem is None]
        numbers = np.array([line.number for line in good], np.int64)
        lengths = np.array([len(line.content) for line in good], np.int32)
        content = b"".join(line.content for line in good)
        yield Block(
            good[0].offset if good else 0, content, numbers, lengths, tuple(each for each in chunk if each.problem)
        )

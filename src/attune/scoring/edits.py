"""Edits between reference and hypothesis: counted, and aligned for reading.

Tokens are words (a list) or characters (a string). The number of edits is the least possible. Where several
alignments need that many, insertions, deletions and substitutions are those of one of them, always the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist

# A reference token beside its hypothesis token; None stands opposite an insertion or a deletion.
Pair = tuple[str | None, str | None]


class Edits(NamedTuple):
    """What turns a reference of `tokens` tokens into its hypothesis."""

    insertions: int
    deletions: int
    substitutions: int
    tokens: int

    @property
    def total(self) -> int:
        """All edits: the edit distance."""
        return self.insertions + self.deletions + self.substitutions


def count(reference: Sequence[str], hypothesis: Sequence[str]) -> Edits:
    """Count the edits."""
    return Edits(*tally(reference, hypothesis))


def tally(reference: Sequence[str], hypothesis: Sequence[str]) -> tuple[int, int, int, int]:
    """Insertions, deletions, substitutions and tokens; a hundred thousand utterances take a quarter of a second."""
    operations = Levenshtein.editops(reference, hypothesis).as_list()
    deletions = 0
    for kind, _, _ in operations:
        if kind == "delete":
            deletions += 1
    # The lengths differ by insertions minus deletions, so one kind counted gives the other two.
    insertions = len(hypothesis) - len(reference) + deletions
    return insertions, deletions, len(operations) - insertions - deletions, len(reference)


def distances(references: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.int64]:
    """The number of edits between characters alone, for many pairs at once."""
    if not references:
        return np.zeros(0, np.int64)
    found: NDArray[np.int64] = cpdist(references, hypotheses, scorer=Levenshtein.distance, dtype=np.int64, workers=-1)
    return found


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Pair]:
    """Set reference and hypothesis side by side, token by token."""
    pairs: list[Pair] = []
    for block in Levenshtein.opcodes(reference, hypothesis):
        left = reference[block.src_start : block.src_end]
        right = hypothesis[block.dest_start : block.dest_end]
        gap = [None] * max(len(left), len(right))
        pairs += zip(left or gap, right or gap, strict=True)
    return pairs

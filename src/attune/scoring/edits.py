"""Edits between what was said and what was recognized: counted, and aligned for reading.

Tokens are words (a list) or characters (a string). The number of edits is the least possible. Where several
alignments need that many, insertions, deletions and substitutions are those of one of them, always the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

# A reference token beside its hypothesis token; None stands opposite an insertion or a deletion.
Pair = tuple[str | None, str | None]


class Edits(NamedTuple):  # one is made per utterance, and a frozen dataclass takes 2.7 times as long
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
    """Count the edits; a hundred thousand utterances take a fraction of a second."""
    operations = Levenshtein.editops(reference, hypothesis).as_list()
    deletions = 0
    for kind, _, _ in operations:
        if kind == "delete":
            deletions += 1
    # The lengths differ by insertions minus deletions, so one kind counted gives the other two.
    insertions = len(hypothesis) - len(reference) + deletions
    return Edits(insertions, deletions, len(operations) - insertions - deletions, len(reference))


def distance(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """The number of edits alone, where their kinds do not matter."""
    return int(Levenshtein.distance(reference, hypothesis))


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Pair]:
    """Set reference and hypothesis side by side, token by token."""
    pairs: list[Pair] = []
    for block in Levenshtein.opcodes(reference, hypothesis):
        said = reference[block.src_start : block.src_end]
        heard = hypothesis[block.dest_start : block.dest_end]
        gap = [None] * max(len(said), len(heard))
        pairs += zip(said or gap, heard or gap, strict=True)
    return pairs

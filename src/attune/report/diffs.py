"""What a hypothesis does to its reference, in few characters, so that a page can hold a hundred thousand of them.

`3 ~cat -2 +the`: three words alike, one is `cat` instead, two are deleted, `the` is inserted, and the rest is alike.
A hypothesis without an error is an empty text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from attune.scoring.edits import Pair


class Diff(NamedTuple):
    """The code of a difference, and how many words were inserted, deleted and substituted."""

    code: str
    insertions: int
    deletions: int
    substitutions: int

    @property
    def total(self) -> int:
        """All errors."""
        return self.insertions + self.deletions + self.substitutions


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How often each reference word was there, how often it was wrong, and what was taken for what."""

    seen: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    confused: Counter[Pair] = field(default_factory=Counter)


def diff(reference: Sequence[str], hypothesis: Sequence[str], counts: WordCounts) -> Diff:
    """The difference of two texts as words; `counts` gets what it adds to them."""
    counts.seen.update(reference)
    if reference == hypothesis:
        return Diff("", 0, 0, 0)
    code: list[str] = []
    pairs: list[Pair] = []
    for block in Levenshtein.opcodes(reference, hypothesis):
        wanted, found = reference[block.src_start : block.src_end], hypothesis[block.dest_start : block.dest_end]
        match block.tag:
            case "equal":
                code.append(str(len(wanted)))
            case "delete":
                code.append(f"-{len(wanted)}")
                pairs += [(word, None) for word in wanted]
            case "insert":
                code += [f"+{word}" for word in found]
                pairs += [(None, word) for word in found]
            case _:
                code += [f"~{word}" for word in found]
                pairs += zip(wanted, found, strict=True)
    counts.confused.update(pairs)
    counts.wrong.update(wanted for wanted, _ in pairs if wanted is not None)
    insertions, deletions = sum(wanted is None for wanted, _ in pairs), sum(found is None for _, found in pairs)
    return Diff(" ".join(code), insertions, deletions, len(pairs) - insertions - deletions)

"""Which words of an unfinished utterance are certain: those on which two successive hypotheses agree.

A model that sees whole utterances is asked again as more audio comes. What both hypotheses begin with is stable and
can be shown; the rest may still change. The final result is the hypothesis of the whole utterance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Agreement:
    """The words shown so far, and the hypothesis that the next one is compared with."""

    shown: list[str] = field(default_factory=list)
    _last: Sequence[str] = ()

    def update(self, words: Sequence[str]) -> list[str]:
        """The words that are certain now and were not before."""
        count = _common(self._last, words)
        self._last = words
        new = list(words[len(self.shown) : count]) if _common(self.shown, words) == len(self.shown) else []
        self.shown += new
        return new


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words both begin with."""
    for index, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return index
    return min(len(one), len(other))

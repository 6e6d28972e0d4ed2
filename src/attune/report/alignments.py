"""Reference above hypothesis, word under word, with the errors marked; for predictions that are texts.

demo-017: 2 errors in 4 words (1 insertion, 1 substitution)
  ref  the  ***  cat  sat  down
  hyp  the  bat  we   sat  down
            I    S
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from attune.metrics import Prediction
from attune.scoring import edits
from attune.scoring.edits import Edits, Pair
from attune.scoring.texts import texts_of

LABELS = ("  ref", "  hyp", "     ")
GAP = "  "

# A reference word, its hypothesis word and the mark below them, as wide as one another.
Column = tuple[str, str, str]


def alignments(predictions: Sequence[Prediction], width: int = 100) -> Iterator[str]:
    """The utterances with errors, a few lines each, worst first; those without a prediction come before all."""
    wrong: list[tuple[int, str, str]] = []
    for prediction, reference, hypothesis in zip(predictions, *texts_of(predictions), strict=True):
        if hypothesis is None:
            yield f"{prediction.id}: no prediction\n{LABELS[0]}{GAP}{reference}"
            continue
        words = reference.split(), hypothesis.split()
        counted = edits.count(*words)
        if counted.total:
            lines = [f"{prediction.id}: {_summary(counted)}", *_side_by_side(edits.align(*words), width)]
            wrong.append((-counted.total, prediction.id, "\n".join(lines)))
    for _, _, text in sorted(wrong):
        yield text


def _summary(counted: Edits) -> str:
    kinds = {"insertion": counted.insertions, "deletion": counted.deletions, "substitution": counted.substitutions}
    named = ", ".join(_plural(number, kind) for kind, number in kinds.items() if number)
    return f"{_plural(counted.total, 'error')} in {_plural(counted.tokens, 'word')} ({named})"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _side_by_side(pairs: list[Pair], width: int) -> Iterator[str]:
    for block in _wrap([_column(pair) for pair in pairs], width):
        for label, cells in zip(LABELS, zip(*block, strict=True), strict=True):
            line = GAP.join([label, *cells]).rstrip()
            if line:
                yield line


def _column(pair: Pair) -> Column:
    reference, hypothesis = pair
    columns = max(_display_width(word) for word in pair if word is not None)
    mark = "I" if reference is None else "D" if hypothesis is None else "S" if reference != hypothesis else ""
    gap = "*" * columns
    return _pad(reference or gap, columns), _pad(hypothesis or gap, columns), _pad(mark, columns)


def _wrap(columns: list[Column], width: int) -> Iterator[list[Column]]:
    """Blocks of columns that fit into `width`; a column that is wider has a block of its own."""
    block: list[Column] = []
    used = len(LABELS[0])
    for column in columns:
        needed = len(GAP) + _display_width(column[0])
        if block and used + needed > width:
            yield block
            block, used = [], len(LABELS[0])
        block.append(column)
        used += needed
    yield block


def _pad(word: str, columns: int) -> str:
    return word + " " * (columns - _display_width(word))


def _display_width(word: str) -> int:
    """How many columns a terminal gives to `word`: none for a mark, two for a wide character."""
    return sum(_columns(character) for character in word)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1

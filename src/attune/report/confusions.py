"""What is taken for what, most often first: labels, or words of transcripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attune.metrics import Prediction
from attune.report.predictions import normalized
from attune.scoring import edits
from attune.scoring.texts import texts_of


@dataclass(frozen=True, slots=True)
class Confusion:
    """A reference that was predicted as something else so many times; None stands for no word at all."""

    reference: str | None
    predicted: str | None
    count: int

    def __str__(self) -> str:
        if self.reference is None:
            return f"{self.predicted} inserted, {self.count} ×"
        if self.predicted is None:
            return f"{self.reference} deleted, {self.count} ×"
        return f"{self.reference} → {self.predicted}, {self.count} ×"


def label_confusions(predictions: Sequence[Prediction]) -> list[Confusion]:
    """Pairs of labels that differ; absent predictions are not among them."""
    pairs = zip(*texts_of(predictions), strict=True)
    return _ranked(Counter(pair for pair in pairs if pair[1] is not None and pair[0] != pair[1]))


def word_confusions(predictions: Sequence[Prediction], normalize: Callable[[str], str]) -> list[Confusion]:
    """Words of the normalized texts that were substituted, deleted or inserted."""
    found: Counter[tuple[str | None, str | None]] = Counter()
    for reference, hypothesis in zip(*texts_of(normalized(predictions, normalize)), strict=True):
        if hypothesis is not None:
            aligned = edits.align(reference.split(), hypothesis.split())
            found.update(pair for pair in aligned if pair[0] != pair[1])
    return _ranked(found)


def _ranked(found: Counter[tuple[str | None, str | None]]) -> list[Confusion]:
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1] or ""))
    return [Confusion(reference, predicted, count) for (reference, predicted), count in ordered]

"""Accuracy of labels. They are compared as they are written; an absent prediction (None) is counted, not scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass

from attune.errors import DataError
from attune.scoring import bootstrap
from attune.types import Scores


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Whole numbers, so that ranks add up exactly: `sum(parts, LabelCounts())`."""

    num_correct: int = 0
    num_scored: int = 0
    num_absent: int = 0
    num_ref: int = 0

    def __add__(self, other: LabelCounts) -> LabelCounts:
        return LabelCounts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def score_labels(references: Sequence[str], predictions: Sequence[str | None]) -> Scores:
    """Accuracy in percent with its 95 % interval, and the counts behind it."""
    correct = _compare(references, predictions)
    if not correct:
        raise DataError(f"Nothing to score: {len(references)} references and not one prediction.")
    values = {"accuracy": bootstrap.percent(correct, [1] * len(correct))}
    return Scores(values, asdict(_sum(correct, len(references))))


def count_labels(references: Sequence[str], predictions: Sequence[str | None]) -> LabelCounts:
    """The counts alone, for one rank's share of the utterances."""
    return _sum(_compare(references, predictions), len(references))


def _compare(references: Sequence[str], predictions: Sequence[str | None]) -> list[bool]:
    if len(references) != len(predictions):
        raise DataError(f"{len(references)} references but {len(predictions)} predictions; give one for each, or None.")
    return [said == heard for said, heard in zip(references, predictions, strict=True) if heard is not None]


def _sum(correct: list[bool], references: int) -> LabelCounts:
    return LabelCounts(sum(correct), len(correct), references - len(correct), references)

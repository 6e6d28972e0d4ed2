"""Accuracy of labels. They are compared as they are written; an absent prediction (None) is counted, not scored."""

from __future__ import annotations

from collections.abc import Sequence

from attune.errors import DataError
from attune.metrics import Metric, Scores
from attune.scoring import bootstrap

ACCURACY = Metric("accuracy", "%", True, "Share of utterances with the correct label.")


def score_labels(references: Sequence[str], predictions: Sequence[str | None]) -> Scores:
    """Accuracy in percent with its 95 % interval, and the counts behind it; NaN when nothing was predicted."""
    if len(references) != len(predictions):
        raise DataError(f"{len(references)} references but {len(predictions)} predictions; give one for each, or None.")
    pairs = zip(references, predictions, strict=True)
    correct = [actual == predicted for actual, predicted in pairs if predicted is not None]
    counts = {
        "num_correct": sum(correct),
        "num_scored": len(correct),
        "num_absent": len(references) - len(correct),
        "num_ref": len(references),
    }
    return Scores({ACCURACY.name: bootstrap.percent(ACCURACY, correct, [1] * len(correct))}, counts)

"""Predictions that are texts: what error rates, accuracy and alignments are made of."""

from __future__ import annotations

from collections.abc import Sequence

from attune.errors import DataError
from attune.metrics import Json, Prediction

KINDS = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}


def texts_of(predictions: Sequence[Prediction]) -> tuple[list[str], list[str | None]]:
    """The references and the hypotheses; None for an absent one. A value that is not text is refused by its id."""
    references = [_text(prediction.id, "reference", prediction.reference) for prediction in predictions]
    hypotheses = [None if prediction.is_absent else _hypothesis(prediction) for prediction in predictions]
    return references, hypotheses


def _hypothesis(prediction: Prediction) -> str:
    if prediction.file is not None:
        raise DataError(f"Prediction {prediction.id!r}: the value is a file ({prediction.file}), not text.")
    return _text(prediction.id, "value", prediction.value)


def _text(name: str, field: str, value: Json) -> str:
    if not isinstance(value, str):
        raise DataError(f"Prediction {name!r}: the {field} is {KINDS.get(type(value), 'null')}, not text.")
    return value

"""What a task predicts and how good that is: metrics are declared by the task, predictions are JSON values.

Everything that compares or prints a score (best checkpoint, early stopping, tables, cards) reads its metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Unit = Literal["%", "dB", "s", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """A score that a task has, such as wer: in which unit, and which direction is better."""

    name: str
    unit: Unit
    higher_is_better: bool
    description: str  # one sentence

    def is_better(self, new: float, old: float) -> bool:
        """Whether `new` is strictly better than `old`; NaN is never better, and anything is better than NaN."""
        if math.isnan(new) or math.isnan(old):
            return not math.isnan(new)
        return new > old if self.higher_is_better else new < old


@dataclass(frozen=True, slots=True)
class Score:
    """A value of a metric with its 95 % bootstrap interval."""

    metric: Metric
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores by metric name, the counts they come from, and the conditions they hold under (normalizer, collar …)."""

    values: Mapping[str, Score]
    counts: Mapping[str, int]
    conditions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A line of `predictions/*.jsonl`: the value is typed by the task (text, label, segments, embedding).

    A value that is audio is a `file`, relative to the folder of the predictions.
    """

    id: str
    value: Json
    reference: Json
    score: float | None = None
    file: str | None = None
    language: str | None = None  # given or detected, of a model that detects languages

    @property
    def is_absent(self) -> bool:
        """Whether the utterance has no prediction: its audio could not be read."""
        return self.value is None and self.file is None

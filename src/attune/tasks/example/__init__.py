"""An example to copy: classify random noise. `attune train example` needs no data and runs anywhere.

It has all that a task has and nothing more; `classify` is the one to use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from attune.contracts import TaskType
from attune.errors import DataError
from attune.scoring.accuracy import ACCURACY, score_labels
from attune.scoring.texts import texts_of
from attune.types import Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance, require_hypothesis

if TYPE_CHECKING:  # a recipe is read without loading torch
    from attune.tasks.example.head import ExampleHead

LABEL = "class"


@dataclass(frozen=True, slots=True)
class ExampleConfig:
    """The recipe's `task` section."""

    classes: Annotated[int, Field(ge=2, description="Number of classes, numbered from 0.")] = 2


class ExampleTask:
    """The number of each utterance's class."""

    Config: ClassVar[type[ExampleConfig]] = ExampleConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: ExampleConfig, folder: Path) -> None:
        self.config = config

    @staticmethod
    def missing_field(config: ExampleConfig, utterance: Utterance) -> str | None:
        """The class."""
        return None if LABEL in utterance.labels else LABEL

    @staticmethod
    def prepare(config: ExampleConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Nothing: the classes are known. A task that learns names or tokens writes them to `folder` here."""

    @staticmethod
    def can_reuse(config: ExampleConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Always: nothing was prepared."""
        return True

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The class's number."""
        number = int(self.reference(utterance))
        if number >= self.config.classes:
            raise DataError(
                f"{utterance.where}: class {number}, but task.classes is {self.config.classes}. Raise task.classes."
            )
        return (number,)

    def reference(self, utterance: Utterance) -> str:
        """The class as it is written."""
        if not utterance.labels.get(LABEL, "").isdecimal():
            raise DataError(f"{utterance.where}: utterance {utterance.id!r} has no class. Give the row a number.")
        return utterance.labels[LABEL]

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int, stride: int) -> ExampleHead:
        """A linear layer on the mean over time."""
        from attune.tasks.example.head import ExampleHead

        return ExampleHead(width, self.config.classes)

    def read(self, output: Output) -> str:
        """The class found."""
        return str(require_hypothesis(output).tokens[0])

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Accuracy with its counts."""
        return score_labels(*texts_of(predictions))


TASK: TaskType[ExampleConfig] = ExampleTask

"""Classify utterances: one label each, such as a keyword, an intent, an emotion, a speaker or a language.

Several labels (`label: action+object+location`) are predicted together, and an utterance is right when all of them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from attune.catalog import suggestion
from attune.contracts import TaskType
from attune.errors import DataError
from attune.scoring.accuracy import ACCURACY, score_labels
from attune.scoring.texts import texts_of
from attune.tasks._names import read_list, write_names
from attune.types import (
    Metric,
    Output,
    Prediction,
    Scores,
    ScoringContext,
    Target,
    Utterance,
    require_hypothesis,
)

if TYPE_CHECKING:
    from attune.tasks.classify.head import LabelHead

LABELS = "labels.json"
JOINT = " | "  # between the values of several labels


@dataclass(frozen=True, slots=True)
class LabelHeadConfig:
    """The module on top of the encoder: a projection and the mean over time."""

    width: Annotated[int, Field(ge=1, le=2**62, description="Width of the projection.")] = 256
    activation: Annotated[
        Literal["relu", "none"],
        Field(description="Activation before mean pooling; none as in SUPERB, but not for zero-mean features (fbank)."),
    ] = "relu"


@dataclass(frozen=True, slots=True)
class ClassifyConfig:
    """Which label, and what is on top of the encoder."""

    label: Annotated[
        str,
        Field(
            description="Field to predict: a label of the manifest, or speaker, language, text; join several with +."
        ),
    ] = "label"
    head: LabelHeadConfig = field(default_factory=LabelHeadConfig)


class Classify:
    """One of the labels seen in training for each utterance."""

    Config: ClassVar[type[ClassifyConfig]] = ClassifyConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"
    pipeline_tag: ClassVar[str] = "audio-classification"

    def __init__(self, config: ClassifyConfig, folder: Path) -> None:
        self.config = config
        self.values = _read_values(folder / LABELS)
        self.names = [JOINT.join(each) for each in product(*self.values)]
        self.ids = {name: number for number, name in enumerate(self.names)}

    @staticmethod
    def missing_field(config: ClassifyConfig, utterance: Utterance) -> str | None:
        """The label that is to be learned."""
        labels = _labels(utterance)
        return next((name for name in config.label.split("+") if name not in labels), None)

    @staticmethod
    def prepare(config: ClassifyConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Collect the label names from the training utterances."""
        rows = {_values(config, utterance) for utterance in utterances}
        if len(rows) < 2:
            raise DataError(
                f"Classification needs at least two values of {config.label!r}; the training set has "
                f"{len(rows)}. Set task.label."
            )
        values = [sorted(set(column)) for column in zip(*rows, strict=True)]
        write_names(folder / LABELS, values[0] if len(values) == 1 else values)

    @staticmethod
    def can_reuse(config: ClassifyConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether `folder` has just the labels of these utterances."""
        rows = {_values(config, utterance) for utterance in utterances}
        return _read_values(folder / LABELS) == [sorted(set(column)) for column in zip(*rows, strict=True)]

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The label's number."""
        name = self.reference(utterance)
        if name not in self.ids:
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has {self.config.label} {name!r}, which is not "
                f"in the training set{suggestion(name, self.names)}"
            )
        return (self.ids[name],)

    def reference(self, utterance: Utterance) -> str:
        """The label's name."""
        return JOINT.join(_values(self.config, utterance))

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int, stride: int) -> LabelHead:
        """Projection, mean over time and a distribution over labels."""
        from attune.tasks.classify.head import LabelHead

        settings = self.config.head
        return LabelHead(width, settings.width, [len(each) for each in self.values], settings.activation == "relu")

    def read(self, output: Output) -> str:
        """The name of the label found."""
        return self.names[require_hypothesis(output).tokens[0]]

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Accuracy with its counts."""
        return score_labels(*texts_of(predictions))


def _read_values(path: Path) -> list[list[str]]:
    """The values of each label; where there is one label, the file has them alone."""
    found = read_list(path)
    return [[str(name) for name in each] for each in found if isinstance(each, list)] or [list(map(str, found))]


def _values(config: ClassifyConfig, utterance: Utterance) -> tuple[str, ...]:
    labels = _labels(utterance)
    names = config.label.split("+")
    for name in names:
        if name not in labels:
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has no label {name!r}{suggestion(name, labels)}"
            )
    return tuple(labels[name] for name in names)


def _labels(utterance: Utterance) -> dict[str, str]:
    """All that an utterance can be classified by."""
    own = {"speaker": utterance.speaker, "language": utterance.language, "text": utterance.text}
    return {**{name: value for name, value in own.items() if value}, **utterance.labels}


TASK: TaskType[ClassifyConfig] = Classify

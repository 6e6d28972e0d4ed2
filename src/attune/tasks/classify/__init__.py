"""Classify utterances: one label each, such as a keyword, an intent, an emotion, a speaker or a language."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from attune.catalog import suggestion
from attune.contracts import TaskType
from attune.errors import DataError, ModelError
from attune.files import write_text
from attune.scoring.accuracy import ACCURACY, score_labels
from attune.scoring.texts import texts_of
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


@dataclass(frozen=True, slots=True)
class LabelHeadConfig:
    """The module on top of the encoder: a projection and the mean over time."""

    width: Annotated[int, Field(ge=1, le=65_536, description="Width of the projection.")] = 256


@dataclass(frozen=True, slots=True)
class ClassifyConfig:
    """Which label, and what is on top of the encoder."""

    label: Annotated[str, Field(description="A label of the manifest, or speaker, language or text.")] = "label"
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
        self.names = _read_names(folder / LABELS)
        self.ids = {name: number for number, name in enumerate(self.names)}

    @staticmethod
    def missing_field(config: ClassifyConfig, utterance: Utterance) -> str | None:
        """The label that is to be learned."""
        return None if config.label in _labels(utterance) else config.label

    @staticmethod
    def prepare(config: ClassifyConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Collect the label names from the training utterances."""
        names = sorted({_label(config, utterance) for utterance in utterances})
        if len(names) < 2:
            raise DataError(
                f"Classification needs at least two values of {config.label!r}; the training set has "
                f"{len(names)}. Set task.label."
            )
        write_text(folder / LABELS, json.dumps(names, ensure_ascii=False, indent=1) + "\n")

    @staticmethod
    def can_reuse(config: ClassifyConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether `folder` has just the labels of these utterances."""
        return set(_read_names(folder / LABELS)) == {_label(config, utterance) for utterance in utterances}

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The label's number."""
        name = self.reference(utterance)
        if name not in self.ids:
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has the {self.config.label} {name!r}, which the "
                f"training set does not have{suggestion(name, self.names)}"
            )
        return (self.ids[name],)

    def reference(self, utterance: Utterance) -> str:
        """The label's name."""
        return _label(self.config, utterance)

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int) -> LabelHead:
        """Projection, mean over time and a distribution over labels."""
        from attune.tasks.classify.head import LabelHead

        return LabelHead(width, self.config.head.width, len(self.names))

    def read(self, output: Output) -> str:
        """The name of the label found."""
        return self.names[require_hypothesis(output).tokens[0]]

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Accuracy with its counts."""
        return score_labels(*texts_of(predictions))


def _read_names(path: Path) -> list[str]:
    try:
        names: list[str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"Cannot read the labels {path}: {error}. Prepare the run again.") from error
    return names


def _label(config: ClassifyConfig, utterance: Utterance) -> str:
    labels = _labels(utterance)
    if config.label not in labels:
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has no label "
            f"{config.label!r}{suggestion(config.label, labels)}"
        )
    return labels[config.label]


def _labels(utterance: Utterance) -> dict[str, str]:
    """All that an utterance can be classified by."""
    own = {"speaker": utterance.speaker, "language": utterance.language, "text": utterance.text}
    return {**{name: value for name, value in own.items() if value}, **utterance.labels}


TASK: TaskType[ClassifyConfig] = Classify

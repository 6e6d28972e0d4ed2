"""Separate speakers: from a mixture to the speech of each, by masks on the spectrum; scored by SI-SDR improvement.

Rows have the mixture as `audio` and the speakers among their `signals`. The order of the predicted speakers is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from attune.audio.decode import read_signal, read_utterance
from attune.contracts import TaskType
from attune.errors import DataError, ModelError
from attune.scoring import bootstrap
from attune.scoring.signals import SI_SDR, SI_SDR_IMPROVEMENT, best_order, si_sdr
from attune.tasks._mask_settings import MaskHeadConfig, read_prediction
from attune.types import Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance

if TYPE_CHECKING:
    from attune.tasks._masks import MaskHead, SourceSignals


@dataclass(frozen=True, slots=True)
class SeparateConfig:
    """Which signals are the speakers, and what is on top of the encoder."""

    sources: Annotated[
        tuple[str, ...], Field(min_length=2, max_length=4, description="Signals of each row with one speaker each.")
    ] = ("s1", "s2")
    head: MaskHeadConfig = field(default_factory=MaskHeadConfig)


class Separate:
    """The speech of each speaker of a mixture."""

    Config: ClassVar[type[SeparateConfig]] = SeparateConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (SI_SDR_IMPROVEMENT, SI_SDR)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: SeparateConfig, folder: Path) -> None:
        self.config = config

    @staticmethod
    def missing_field(config: SeparateConfig, utterance: Utterance) -> str | None:
        """A speaker's own signal."""
        return next((f"signals.{name}" for name in config.sources if name not in utterance.signals), None)

    @staticmethod
    def prepare(config: SeparateConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Nothing."""

    @staticmethod
    def can_reuse(config: SeparateConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Always: nothing was prepared."""
        return True

    def target(self, utterance: Utterance) -> SourceSignals:
        """The speakers' own signals."""
        import torch

        from attune.tasks._masks import SourceSignals

        signals = [torch.from_numpy(read_signal(utterance, name)) for name in self.config.sources]
        size = min(map(len, signals))
        return SourceSignals(torch.stack([signal[:size] for signal in signals]))

    def reference(self, utterance: Utterance) -> str:
        """The names of the signals; scoring reads them."""
        if missing := self.missing_field(self.config, utterance):
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has no {missing}. Add it to the row, or "
                "set task.sources."
            )
        return " ".join(self.config.sources)

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int, stride: int) -> MaskHead:
        """LSTM layers and a mask on the spectrum for each speaker."""
        from attune.tasks._masks import MaskHead

        return MaskHead(width, stride, len(self.config.sources), self.config.head)

    def read(self, output: Output) -> None:
        """Audio is written beside the predictions."""
        raise ModelError("Separated speech is written to audio files; it has no JSON value.")

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Means over utterances, of which each is a mean over speakers."""
        found = [each for each in predictions if not each.is_absent]
        rows = [self._figures(each, context) for each in found]
        improvements, ratios = zip(*rows, strict=True) if rows else ((), ())
        scores = {
            SI_SDR_IMPROVEMENT.name: bootstrap.mean(SI_SDR_IMPROVEMENT, improvements),
            SI_SDR.name: bootstrap.mean(SI_SDR, ratios),
        }
        return Scores(scores, {"num_scored": len(found), "num_absent": len(predictions) - len(found)})

    def _figures(self, prediction: Prediction, context: ScoringContext) -> tuple[float, float]:
        """Improvement and ratio of one utterance, under the best order of the estimates."""
        utterance = context.utterance(prediction.id)
        estimates = read_prediction(context.folder / str(prediction.file))
        sources = [read_signal(utterance, name).astype(np.float64) for name in self.config.sources]
        mixture = read_utterance(utterance).astype(np.float64)
        if len(estimates) != len(sources):
            raise DataError(f"Prediction {prediction.id!r} has {len(estimates)} signals; expected {len(sources)}.")
        ratios = best_order(sources, list(estimates))
        before = [si_sdr(source, mixture) for source in sources]
        return float(np.mean(ratios) - np.mean(before)), float(np.mean(ratios))


TASK: TaskType[SeparateConfig] = Separate

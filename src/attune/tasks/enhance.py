"""Enhance speech: from a noisy recording to clean speech, by masks on the spectrum; SI-SDR improvement, STOI, PESQ.

Rows have the noisy recording as `audio` and the clean one among their `signals`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from attune.audio.decode import read_signal, read_utterance
from attune.contracts import TaskType
from attune.errors import ConfigError, DataError, ModelError
from attune.scoring import bootstrap
from attune.scoring.signals import PESQ, SI_SDR, SI_SDR_IMPROVEMENT, STOI, si_sdr
from attune.scoring.stoi import stoi
from attune.tasks._mask_settings import MaskHeadConfig, read_prediction
from attune.types import SAMPLE_RATE, Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance

if TYPE_CHECKING:
    from attune.tasks._masks import MaskHead, SourceSignals


NO_SPEECH = 1.0  # the PESQ of silence, which the package cannot compute


@dataclass(frozen=True, slots=True)
class EnhanceConfig:
    """Which signal is the clean speech, and what is on top of the encoder."""

    clean: Annotated[str, Field(description="Signal of each row with the clean speech.")] = "clean"
    pesq: Annotated[bool, Field(description="Score PESQ too; needs the package pesq.")] = False
    head: MaskHeadConfig = field(default_factory=MaskHeadConfig)


class Enhance:
    """The clean speech of each noisy recording."""

    Config: ClassVar[type[EnhanceConfig]] = EnhanceConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (SI_SDR_IMPROVEMENT, SI_SDR, STOI, PESQ)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: EnhanceConfig, folder: Path) -> None:
        self.config = config

    @staticmethod
    def missing_field(config: EnhanceConfig, utterance: Utterance) -> str | None:
        """The clean speech."""
        return None if config.clean in utterance.signals else f"signals.{config.clean}"

    @staticmethod
    def prepare(config: EnhanceConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Nothing."""

    @staticmethod
    def can_reuse(config: EnhanceConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Always: nothing was prepared."""
        return True

    def target(self, utterance: Utterance) -> SourceSignals:
        """The clean speech."""
        import torch

        from attune.tasks._masks import SourceSignals

        return SourceSignals(torch.from_numpy(read_signal(utterance, self.config.clean))[None])

    def reference(self, utterance: Utterance) -> str:
        """The name of the clean signal; scoring reads it."""
        if self.config.clean not in utterance.signals:
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has no signal {self.config.clean!r}. Add it to "
                "`signals` of the row, or set task.clean."
            )
        return self.config.clean

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int, stride: int) -> MaskHead:
        """LSTM layers and a mask on the spectrum."""
        from attune.tasks._masks import MaskHead

        return MaskHead(width, stride, 1, self.config.head)

    def read(self, output: Output) -> None:
        """Audio is written beside the predictions."""
        raise ModelError("Enhanced speech is written to audio files; it has no JSON value.")

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None; PESQ without its package is refused here, before anything is decoded."""
        if self.config.pesq and importlib.util.find_spec("pesq") is None:
            raise ConfigError("task.pesq needs the package pesq. Run `pip install pesq`, or remove task.pesq.")
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Means over utterances."""
        found = [each for each in predictions if not each.is_absent]
        rows = [self._figures(each, context) for each in found]
        wanted = [metric for metric in self.metrics if self.config.pesq or metric != PESQ]
        means = [bootstrap.mean(metric, [row[metric.name] for row in rows]) for metric in wanted]
        counts = {"num_scored": len(found), "num_absent": len(predictions) - len(found)}
        conditions = {"pesq": "wide-band, 16 kHz"} if self.config.pesq else {}
        return Scores({score.metric.name: score for score in means}, counts, conditions)

    def _figures(self, prediction: Prediction, context: ScoringContext) -> dict[str, float]:
        """Each metric of one utterance."""
        utterance = context.utterance(prediction.id)
        clean = read_signal(utterance, self.config.clean).astype(np.float64)
        noisy = read_utterance(utterance).astype(np.float64)
        estimate = read_prediction(context.folder / str(prediction.file))[0]
        size = min(len(clean), len(noisy), len(estimate))
        clean, noisy, estimate = clean[:size], noisy[:size], estimate[:size]
        ratio = si_sdr(clean, estimate)
        figures = {
            SI_SDR_IMPROVEMENT.name: ratio - si_sdr(clean, noisy),
            SI_SDR.name: ratio,
            STOI.name: 100 * stoi(clean, estimate, SAMPLE_RATE),
        }
        return {**figures, PESQ.name: _pesq(clean, estimate)} if self.config.pesq else figures


def _pesq(clean: NDArray[np.float64], estimate: NDArray[np.float64]) -> float:
    from pesq import PesqError, pesq

    if not estimate.any():
        return NO_SPEECH
    try:
        return float(pesq(SAMPLE_RATE, clean, estimate, "wb"))
    except PesqError as error:
        raise DataError(f"PESQ cannot be computed: {error}. Remove rows without speech.") from error


TASK: TaskType[EnhanceConfig] = Enhance

"""Convert voices: any speech in the voice of one target speaker; scored by mel-cepstral distortion (MCD).

Training rows are speech of the target speaker alone. Rows to score are of other speakers, with the target speaker's
recording of the same sentence among their `signals`; without one, a row is compared with itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field

from attune.audio.decode import read_signal, read_utterance
from attune.contracts import TaskType
from attune.errors import ModelError
from attune.scoring import bootstrap
from attune.scoring.cepstra import MCD, WARP, loud_frames, mel_cepstral_distortion, mel_cepstrum
from attune.tasks._mask_settings import read_prediction
from attune.tasks.convert_voice.settings import VoiceHeadConfig as VoiceHeadConfig
from attune.tasks.convert_voice.world import load_world, world_envelope
from attune.types import SAMPLE_RATE, Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance

if TYPE_CHECKING:
    from attune.tasks.convert_voice.head import VoiceHead

HOP, WINDOW, TRANSFORM = SAMPLE_RATE // 200, SAMPLE_RATE // 40, 1024
FLOOR = 1e-10  # of a power spectrum


@dataclass(frozen=True, slots=True)
class ConvertVoiceConfig:
    """Where the target speaker's recordings are, how they are compared, and what is on top of the encoder."""

    parallel: Annotated[str, Field(description="Signal of each row with the target speaker's recording.")] = "target"
    envelope: Annotated[
        Literal["world", "spectrum"],
        Field(description="Envelopes that MCD compares: WORLD's (needs pyworld), or of the spectrum."),
    ] = "world"
    head: VoiceHeadConfig = field(default_factory=VoiceHeadConfig)


class ConvertVoice:
    """Each utterance in the target speaker's voice."""

    Config: ClassVar[type[ConvertVoiceConfig]] = ConvertVoiceConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (MCD,)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: ConvertVoiceConfig, folder: Path) -> None:
        self.config = config

    @staticmethod
    def missing_field(config: ConvertVoiceConfig, utterance: Utterance) -> str | None:
        """Nothing: audio is all that is learned from."""
        return None

    @staticmethod
    def prepare(config: ConvertVoiceConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Nothing."""

    @staticmethod
    def can_reuse(config: ConvertVoiceConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Always: nothing was prepared."""
        return True

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """Nothing beside the audio."""
        return ()

    def reference(self, utterance: Utterance) -> str:
        """What the converted speech is compared with: a signal, or the row's own audio."""
        return self.config.parallel if self.config.parallel in utterance.signals else "audio"

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int, stride: int) -> VoiceHead:
        """LSTM layers that predict the mel spectrum of the target speaker."""
        from attune.tasks.convert_voice.head import VoiceHead

        return VoiceHead(width, stride, self.config.head)

    def read(self, output: Output) -> None:
        """Audio is written beside the predictions."""
        raise ModelError("Converted speech is written to audio files; it has no JSON value.")

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None; WORLD without its package is refused here, before anything is decoded."""
        if self.config.envelope == "world":
            load_world()
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """MCD, mean over utterances."""
        found = [each for each in predictions if not each.is_absent]
        mcd = bootstrap.mean(MCD, [self._distortion(each, context) for each in found])
        counts = {"num_scored": len(found), "num_absent": len(predictions) - len(found)}
        return Scores({MCD.name: mcd}, counts, {"envelope": self.config.envelope})

    def _distortion(self, prediction: Prediction, context: ScoringContext) -> float:
        utterance, role = context.utterance(prediction.id), self.reference(context.utterance(prediction.id))
        wanted = read_utterance(utterance) if role == "audio" else read_signal(utterance, role)
        converted = read_prediction(context.folder / str(prediction.file))[0]
        envelopes = world_envelope if self.config.envelope == "world" else spectrum_envelope
        one, other = (envelopes(each.astype(np.float64)) for each in (wanted, converted))
        cepstra = [mel_cepstrum(each[loud_frames(each)], WARP[SAMPLE_RATE]) for each in (one, other)]
        return mel_cepstral_distortion(*cepstra)


def spectrum_envelope(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Power spectra (F, K) every 5 ms; the few coefficients of the cepstrum smooth them."""
    padded = np.pad(samples, WINDOW // 2)
    frames = sliding_window_view(padded, WINDOW)[::HOP] * np.hanning(WINDOW)
    return np.abs(np.fft.rfft(frames, TRANSFORM)) ** 2 + FLOOR


TASK: TaskType[ConvertVoiceConfig] = ConvertVoice

"""The `augment` section of a recipe; imported without torch or a decoder."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

Chance = Annotated[float, Field(gt=0, le=1, description="Probability that an utterance is augmented.")]
Decibels = Annotated[float, Field(ge=-200, le=200)]
Range = tuple[Decibels, Decibels]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseConfig:
    """Noise recordings mixed into the speech."""

    folder: Annotated[str, Field(min_length=1, description="Folder of noise recordings, searched recursively.")]
    chance: Chance = 0.5
    snr_db: Annotated[Range, Field(description="Lowest and highest signal-to-noise ratio in dB.")] = (5.0, 20.0)

    def __post_init__(self) -> None:
        _require_order("snr_db", self.snr_db)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomsConfig:
    """Reverberation by room impulse responses, such as OpenSLR 28's simulated_rirs."""

    folder: Annotated[str, Field(min_length=1, description="Folder of room impulse responses, searched recursively.")]
    chance: Chance = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MasksConfig:
    """SpecAugment: time and frequency masks on the features."""

    time_masks: Annotated[int, Field(ge=0, le=1000, description="Number of time masks.")] = 2
    time_part: Annotated[float, Field(gt=0, le=1, description="Longest time mask, as a fraction of the utterance.")] = (
        0.05
    )
    frequency_masks: Annotated[int, Field(ge=0, le=1000, description="Number of frequency masks.")] = 2
    frequency_bins: Annotated[int, Field(gt=0, le=10_000, description="Widest frequency mask, in bins.")] = 27


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """Augmentation of training audio, drawn for each utterance in each epoch."""

    crop_seconds: Annotated[
        float | None,
        Field(
            gt=0, description="Random crop: train on this many seconds of longer utterances; for labels and embeddings."
        ),
    ] = None
    speeds: Annotated[
        tuple[Annotated[float, Field(ge=0.5, le=2)], ...],
        Field(description="Speed perturbation factors, e.g. [0.9, 1.0, 1.1]; the pitch changes too."),
    ] = ()
    rooms: RoomsConfig | None = None
    noise: NoiseConfig | None = None
    gain_db: Annotated[Range | None, Field(description="Lowest and highest gain in dB.")] = None
    masks: MasksConfig | None = None

    def __post_init__(self) -> None:
        if self.gain_db:
            _require_order("gain_db", self.gain_db)


def _require_order(name: str, limits: Range) -> None:
    if limits[0] > limits[1]:
        raise ValueError(f"{name} must go from low to high, found {limits[0]:g} to {limits[1]:g}")

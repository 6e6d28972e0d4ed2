"""What a recipe says about changing the audio it trains on; read without loading torch or a decoder."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

Chance = Annotated[float, Field(gt=0, le=1, description="How many of the utterances are changed, at random.")]
Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseConfig:
    """Noise recordings laid over the speech."""

    folder: Annotated[str, Field(min_length=1, description="A folder of recordings, at any depth.")]
    chance: Chance = 0.5
    snr_db: Annotated[Range, Field(description="The lowest and highest ratio of speech to noise.")] = (5.0, 20.0)

    def __post_init__(self) -> None:
        _require_order("snr_db", self.snr_db)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomsConfig:
    """Room impulse responses that the speech is heard through, such as OpenSLR 28's simulated_rirs."""

    folder: Annotated[str, Field(min_length=1, description="A folder of impulse responses, at any depth.")]
    chance: Chance = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MasksConfig:
    """SpecAugment: stretches of time and bands of frequency hidden from the model."""

    time_masks: Annotated[int, Field(ge=0, description="How many stretches of time.")] = 2
    time_part: Annotated[
        float, Field(gt=0, le=1, description="The longest stretch, as a part of the utterance's own length.")
    ] = 0.05
    frequency_masks: Annotated[int, Field(ge=0, description="How many bands of frequency.")] = 2
    frequency_bins: Annotated[int, Field(gt=0, description="The widest band, in features.")] = 27


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """How training audio is varied, anew for each utterance in each epoch."""

    speeds: Annotated[
        tuple[Annotated[float, Field(ge=0.5, le=2)], ...],
        Field(description="Speeds of which one is drawn, such as 0.9, 1.0 and 1.1; the pitch goes with them."),
    ] = ()
    rooms: RoomsConfig | None = None
    noise: NoiseConfig | None = None
    gain_db: Annotated[Range | None, Field(description="The least and greatest change of loudness.")] = None
    masks: MasksConfig | None = None

    def __post_init__(self) -> None:
        if self.gain_db:
            _require_order("gain_db", self.gain_db)


def _require_order(name: str, limits: Range) -> None:
    if limits[0] > limits[1]:
        raise ValueError(f"{name} must go from low to high, found {limits[0]:g} to {limits[1]:g}")

"""The settings of the head; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, slots=True)
class VoiceHeadConfig:
    """The module on top of the encoder: LSTM layers, a mel spectrum, and Griffin-Lim."""

    layers: Annotated[int, Field(ge=1, description="Bidirectional LSTM layers.")] = 2
    width: Annotated[int, Field(ge=1, description="Width of the projection and of each LSTM direction.")] = 512
    bins: Annotated[int, Field(ge=8, description="Mel bins of the predicted spectrum.")] = 80
    iterations: Annotated[int, Field(ge=1, description="Iterations of Griffin-Lim.")] = 60

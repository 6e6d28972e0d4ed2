"""The settings of the head; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, slots=True)
class ActivityHeadConfig:
    """The module on top of the encoder: LSTM layers, as in SUPERB."""

    layers: Annotated[int, Field(ge=1, description="LSTM layers.")] = 1
    width: Annotated[int, Field(ge=1, description="Width of each layer.")] = 512
    bidirectional: Annotated[bool, Field(description="Bidirectional layers; SUPERB's are unidirectional.")] = False

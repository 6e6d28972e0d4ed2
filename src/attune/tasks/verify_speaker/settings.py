"""The settings of the head; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, slots=True)
class SpeakerHeadConfig:
    """The module on top of the encoder: an x-vector network, as in SUPERB."""

    width: Annotated[int, Field(ge=1, description="Width of the time-delay layers and of the embedding.")] = 512
    pooled: Annotated[int, Field(ge=1, description="Width of the layer before statistics pooling.")] = 1500
    scale: Annotated[float, Field(gt=0, description="Scale of AM-softmax.")] = 30.0
    margin: Annotated[float, Field(ge=0, description="Margin of AM-softmax.")] = 0.4

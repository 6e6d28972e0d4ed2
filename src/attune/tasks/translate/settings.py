"""The settings of the head; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, slots=True)
class TranslationHeadConfig:
    """The module on top of the encoder: a small transformer, as in SUPERB-SG."""

    encoder_layers: Annotated[int, Field(ge=0, description="Encoder layers, after subsampling by 4.")] = 3
    decoder_layers: Annotated[int, Field(ge=1, description="Layers of the decoder.")] = 3
    width: Annotated[int, Field(ge=2, description="Width of each layer; a multiple of heads.")] = 256
    heads: Annotated[int, Field(ge=1, description="Attention heads.")] = 4
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout in each layer.")] = 0.1
    label_smoothing: Annotated[float, Field(ge=0, lt=1, description="Label smoothing.")] = 0.1

    def __post_init__(self) -> None:
        if self.width % (2 * self.heads):
            raise ValueError("width must be an even multiple of heads")

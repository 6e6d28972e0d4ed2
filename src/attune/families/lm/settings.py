"""What a recipe says about a language model; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class LmConfig:
    """Which weights to start from, and how large the model is."""

    weights: Annotated[str | None, Field(description="Model folder or run to start from.")] = None
    size: Annotated[
        Literal["librispeech", "small", "tiny"],
        Field(description="LSTM layers: 2 × 2048 as in SpeechBrain's LibriSpeech recipe, 2 × 512, or 1 × 64."),
    ] = "small"
    tokens: Annotated[
        Literal["own", "task"], Field(description="The tokens of an imported model, or those of the task.")
    ] = "task"
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout between layers.")] = 0.0

"""What a recipe says about a language model; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class LmConfig:
    """Which weights to start from, and how large the model is."""

    weights: Annotated[str | None, Field(description="Model folder or run to start from.")] = None
    kind: Annotated[
        Literal["rnn", "transformer"],
        Field(description="LSTM layers (RNNLM), or causal self-attention.", json_schema_extra={"since": "0.2"}),
    ] = "rnn"
    size: Annotated[
        Literal["librispeech", "small", "tiny"],
        Field(
            description="As in SpeechBrain's LibriSpeech recipes: LSTM 2 × 2048, Transformer 12 × 768; small: 2 × 512, "
            "6 × 256; tiny: 1 × 64, 2 × 64."
        ),
    ] = "small"
    tokens: Annotated[Literal["own", "task"], Field(description="Tokens of the pretrained model, or of the task.")] = (
        "task"
    )
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout between layers.")] = 0.0

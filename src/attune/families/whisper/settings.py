"""A recipe's settings for Whisper models; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """Which weights, and how they are used."""

    weights: Annotated[
        str, Field(description="transformers folder, OpenAI .pt file, model folder or run to start from.")
    ]
    tokenizer: Annotated[str | None, Field(description="tokenizer.json of a .pt file, if not in the same folder.")] = (
        None
    )
    window: Annotated[
        Literal["full", "trimmed"],
        Field(
            description="full: pad audio to 30 s, as other toolkits do. trimmed: no padding; faster, for use in attune."
        ),
    ] = "full"
    speech_task: Annotated[
        Literal["transcribe", "translate"],
        Field(description="Transcribe, or translate to English."),
    ] = "transcribe"
    timestamps: Annotated[bool, Field(description="Train on and emit timestamps: <|0.00|> text <|2.50|>.")] = False
    pack: Annotated[bool, Field(description="Pack several utterances into one window of 30 s in training.")] = False
    label_smoothing: Annotated[float, Field(ge=0, lt=1, description="Label smoothing.")] = 0.0
    gradient_checkpointing: Annotated[bool, Field(description="Less memory for a third more computation.")] = False

    def __post_init__(self) -> None:
        if self.pack and not self.timestamps:
            raise ValueError("`pack` separates utterances by their timestamps: set `timestamps: true` too")

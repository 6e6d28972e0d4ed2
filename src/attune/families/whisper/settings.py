"""A recipe's settings for Whisper models; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """Which weights, and how they are used."""

    weights: Annotated[str, Field(description="A transformers folder, an OpenAI .pt file, a model folder or a run.")]
    tokenizer: Annotated[
        str | None, Field(description="The tokenizer.json that belongs to a .pt file, if it does not lie beside it.")
    ] = None
    window: Annotated[
        Literal["full", "trimmed"],
        Field(description="30 s of audio as OpenAI has it, or as much as each utterance needs; training decides."),
    ] = "full"
    speech_task: Annotated[
        Literal["transcribe", "translate"],
        Field(description="Transcribe in the own language, or translate to English."),
    ] = "transcribe"
    timestamps: Annotated[bool, Field(description="Learn and emit timestamps: <|0.00|> text <|2.50|>.")] = False
    pack: Annotated[
        bool, Field(description="Train on windows of several utterances, as many of a micro-batch as fit into 30 s.")
    ] = False
    gradient_checkpointing: Annotated[bool, Field(description="Less memory for a third more computation.")] = False

    def __post_init__(self) -> None:
        if self.pack and not self.timestamps:
            raise ValueError("`pack` tells utterances apart by their times: set timestamps too")

"""What a recipe says about how a pretrained model is adapted; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

Patterns = tuple[Annotated[str, Field(min_length=1)], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptConfig:
    """Which weights learn.

    A pattern names a part of the model by the end of its dotted name, and `*` stands for anything: `encoder`,
    `decoder.layers.0`, `encoder.layers.[0-3]`, `*norm*`.
    """

    method: Annotated[
        Literal["full", "lora"], Field(description="Train the weights themselves, or low-rank additions to them.")
    ] = "full"
    freeze: Annotated[Patterns, Field(description="Parts that stay as they are, such as encoder.")] = ()
    last_layers: Annotated[
        int | None,
        Field(ge=0, description="Train this many last layers of each stack of layers, and what comes after the stack."),
    ] = None
    rank: Annotated[int, Field(gt=0, description="LoRA: the rank of the additions.")] = 16
    alpha: Annotated[float, Field(gt=0, description="LoRA: the additions are scaled by alpha / rank.")] = 32.0
    dropout: Annotated[float, Field(ge=0, lt=1, description="LoRA: dropout on what the additions see.")] = 0.0
    targets: Annotated[Patterns, Field(min_length=1, description="LoRA: the linear layers that get additions.")] = (
        "q_proj",
        "v_proj",
    )

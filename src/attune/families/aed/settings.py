"""What a recipe says about an attention encoder-decoder; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True, slots=True)
class AedConfig:
    """Which weights or, to begin from nothing, how large a model; and how it is trained."""

    weights: Annotated[
        str | None, Field(description="A folder of SpeechBrain's, a model folder or a run to start from.")
    ] = None
    size: Annotated[
        Literal["librispeech", "tiny"] | None,
        Field(description="The size of a new model: SpeechBrain's LibriSpeech recipe, or one to try things with."),
    ] = None
    tokens: Annotated[
        Literal["own", "task"], Field(description="The pretrained model's own tokens, or those of the task.")
    ] = "own"
    label_smoothing: Annotated[
        float, Field(ge=0, lt=1, description="The probability that is spread over all tokens in the attention loss.")
    ] = 0.1
    ctc_weight: Annotated[
        float, Field(ge=0, le=1, description="The share of the CTC loss; the rest is the attention loss.")
    ] = 0.5

    def __post_init__(self) -> None:
        if (self.weights is None) == (self.size is None):
            raise ValueError("give `weights` to start from, or the `size` of a new model")
        if self.weights is None and self.tokens == "own":
            raise ValueError("a model without weights has no tokens of its own; write `tokens: task`")

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
    temperature: Annotated[
        float, Field(gt=0, le=100, description="Temperature of the decoder's probabilities in a search.")
    ] = 1.0
    end_threshold: Annotated[
        float | None,
        Field(gt=0, le=100, description="A search ends only where the log-probability is above this × the best."),
    ] = None
    max_attention_shift: Annotated[
        int | None, Field(gt=0, le=10**6, description="A search drops a hypothesis whose attention jumps more frames.")
    ] = None
    coverage: Annotated[
        float, Field(ge=0, le=100, description="Penalty of a search for frames that are attended to again and again.")
    ] = 0.0
    coverage_threshold: Annotated[
        float, Field(ge=0, le=100, description="The attention to a frame, over all tokens, above which it counts.")
    ] = 0.5

    def __post_init__(self) -> None:
        if (self.weights is None) == (self.size is None):
            raise ValueError("give `weights` to start from, or the `size` of a new model")
        if self.weights is None and self.tokens == "own":
            raise ValueError("a model without weights has no tokens of its own; write `tokens: task`")

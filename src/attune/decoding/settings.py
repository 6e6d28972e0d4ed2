"""What a recipe says about how hypotheses are searched; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attune.types import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How a hypothesis is found."""

    search: Annotated[
        Literal["greedy", "beam"], Field(description="The best token each time, or a beam of hypotheses.")
    ] = "greedy"
    beam: Annotated[int, Field(gt=0, description="How many hypotheses a beam search keeps.")] = 8
    length_power: Annotated[
        float, Field(ge=0, description="A beam compares score / length ** this; 0 likes short ones. Not for CTC.")
    ] = 1.0
    fallback: Annotated[
        bool,
        Field(description="Decode anew at rising temperatures what repeats itself or is unsure. Token-by-token only."),
    ] = False
    precision: Annotated[
        Precision, Field(description="What the model computes in while it decodes; narrower is quicker on a GPU.")
    ] = "fp32"
    lm: Annotated[
        str | None,
        Field(min_length=1, description="An ARPA file over the model's tokens, for a transducer's beam search."),
    ] = None
    lm_weight: Annotated[float, Field(ge=0, description="How much the language model counts beside the model.")] = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConfig(SearchConfig):
    """The search used while training, and the one used for the final scores."""

    final: Annotated[SearchConfig | None, Field(description="The search for the final scores, if another.")] = None

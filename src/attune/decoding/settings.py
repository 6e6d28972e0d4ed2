"""What a recipe says about how hypotheses are searched; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attune.types import Precision

Search = Annotated[Literal["greedy", "beam"], Field(description="The best token each time, or a beam of hypotheses.")]
Beam = Annotated[int, Field(gt=0, description="How many hypotheses a beam search keeps.")]
LengthPower = Annotated[
    float, Field(ge=0, description="A beam compares score / length ** this; 0 likes short ones. Not for CTC.")
]
Fallback = Annotated[
    bool, Field(description="Decode anew at rising temperatures what repeats itself or is unsure. Token-by-token only.")
]
DecodePrecision = Annotated[
    Precision, Field(description="What the model computes in while it decodes; narrower is quicker on a GPU.")
]
LanguageModel = Annotated[
    str | None, Field(min_length=1, description="An ARPA file over the model's tokens, for a transducer's beam search.")
]
Weight = Annotated[float, Field(ge=0, description="How much the language model counts beside the model.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How a hypothesis is found."""

    search: Search = "greedy"
    beam: Beam = 8
    length_power: LengthPower = 1.0
    fallback: Fallback = False
    precision: DecodePrecision = "fp32"
    lm: LanguageModel = None
    lm_weight: Weight = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConfig:
    """The search used while training, and the one used for the final scores."""

    search: Search = "greedy"
    beam: Beam = 8
    length_power: LengthPower = 1.0
    fallback: Fallback = False
    precision: DecodePrecision = "fp32"
    lm: LanguageModel = None
    lm_weight: Weight = 0.3
    final: Annotated[SearchConfig | None, Field(description="The search for the final scores, if another.")] = None

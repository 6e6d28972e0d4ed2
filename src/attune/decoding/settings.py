"""The `decode` section of a recipe; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attune.types import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How to search for the best hypothesis."""

    search: Annotated[Literal["greedy", "beam"], Field(description="Greedy or beam search.")] = "greedy"
    beam: Annotated[int, Field(gt=0, le=10_000, description="Beam width: hypotheses to keep.")] = 8
    length_power: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            description="Length normalization: hypotheses rank by score / length ** length_power; "
            "0 prefers short ones. Not for CTC.",
        ),
    ] = 1.0
    fallback: Annotated[
        bool,
        Field(
            description="Temperature fallback: decode again when the output repeats or scores low. Attention "
            "models only."
        ),
    ] = False
    precision: Annotated[
        Precision, Field(description="Precision of the model while decoding; half precision is faster on a GPU.")
    ] = "fp32"
    lm: Annotated[
        str | None,
        Field(min_length=1, description="ARPA n-gram model over the model's tokens, fused in beam search."),
    ] = None
    lm_weight: Annotated[
        float, Field(ge=0, le=1000, description="Weight of the language model's log-probabilities.")
    ] = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConfig(SearchConfig):
    """The search while training, and the one for the final scores."""

    final: Annotated[SearchConfig | None, Field(description="Search for the final scores (default: the same).")] = None

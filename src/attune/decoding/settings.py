"""The `decode` section of a recipe; read without loading torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from attune.types import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How to search for the best hypothesis."""

    search: Annotated[
        Literal["greedy", "beam"], Field(description="The best token at each step, or a beam of hypotheses.")
    ] = "greedy"
    beam: Annotated[int, Field(gt=0, description="How many hypotheses a beam search keeps.")] = 8
    length_power: Annotated[
        float, Field(ge=0, description="A beam ranks by score / length ** this; 0 prefers short ones. Not for CTC.")
    ] = 1.0
    fallback: Annotated[
        bool,
        Field(
            description="Temperature fallback: decode again what repeats itself or scores low. Attention models only."
        ),
    ] = False
    precision: Annotated[
        Precision, Field(description="What the model computes in while it decodes; half precision is faster on a GPU.")
    ] = "fp32"
    lm: Annotated[
        str | None,
        Field(
            min_length=1, description="An n-gram model to fuse in a beam search: an ARPA file over the model's tokens."
        ),
    ] = None
    lm_weight: Annotated[float, Field(ge=0, description="The weight of the language model's log-probabilities.")] = 0.3
    batch: Annotated[
        int | None,
        Field(
            gt=0,
            description="Utterances decoded at once. Unset: four micro-batches of training; lower it to save memory.",
            json_schema_extra={"since": "0.2"},
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConfig(SearchConfig):
    """The search while training, and the one for the final scores."""

    final: Annotated[SearchConfig | None, Field(description="The search for the final scores, if another.")] = None

    @property
    def final_batch(self) -> int | None:
        """The batch for the final scores."""
        return (self.final.batch if self.final else None) or self.batch

"""What a recipe says of several training sets, and of shards without an index."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class MixConfig:
    """How much of an epoch each training manifest gets; utterances come again where that is more than they have."""

    weights: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...] | None,
        Field(description="Share of an epoch's audio, one number per entry of data.train."),
    ] = None
    temperature: Annotated[
        float | None,
        Field(
            ge=1, description="Sampling temperature: 1 keeps the proportions of the sets, higher values even them out."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Shards to learn from in one pass, without an index of them."""

    shards: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(
            min_length=1,
            description="Tar or Parquet files: paths, globs, URLs, {000..127}, "
            "or a split of a dataset: hf://datasets/ORG/NAME/CONFIG/train.",
        ),
    ]
    window: Annotated[int, Field(gt=0, le=10**9, description="Shuffle buffer, in utterances.")] = 2000

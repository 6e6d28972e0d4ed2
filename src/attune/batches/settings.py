"""What a recipe says of several training sets, and of shards without an index."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class MixConfig:
    """How much of an epoch each training manifest gets; utterances come again where that is more than they have."""

    weights: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...] | None,
        Field(description="The share of an epoch's audio, for each of data.train in turn."),
    ] = None
    temperature: Annotated[
        float | None, Field(ge=1, description="1 leaves the sets as they are; the higher, the more alike their shares.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Shards to learn from in one pass, without an index of them."""

    shards: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(
            min_length=1,
            description="Tar or Parquet files: paths, globs, addresses, {000..127}, "
            "or a split of a dataset: hf://datasets/ORG/NAME/CONFIG/train.",
        ),
    ]
    window: Annotated[int, Field(gt=0, description="Utterances that are shuffled together.")] = 2000

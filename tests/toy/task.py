"""A task whose settings have one of everything."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field


@dataclass(frozen=True)
class Head:
    layers: Annotated[int, Field(ge=1)] = 2


@dataclass(frozen=True)
class Config:
    language: Annotated[str, Field(description="The language spoken.")]
    vocabulary: Annotated[int, Field(gt=0)] | Literal["auto"] = "auto"
    lexicon: Path | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    head: Head = field(default_factory=Head)

    def __post_init__(self):
        if self.language == "tlh" and self.lexicon is None:
            raise ValueError("Klingon needs a lexicon")


class Toy:
    Config = Config


TASK = Toy

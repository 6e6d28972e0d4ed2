"""The `decode` section of a recipe, and which search uses which setting; read without loading torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import Field

from attune.plain_yaml import Node
from attune.scorers import ScorerKind
from attune.types import DecodingPrecision

if TYPE_CHECKING:
    from torch import Tensor

Lengths = TypeVar("Lengths", float, "Tensor")
SearchName = Literal["greedy", "beam"]

# Greedy search uses none of them: a phrase that breaks off would leave its mark, as nothing can be taken back.
FUSED = ("lm", "lm_weight", "lm_temperature", "phrases", "phrase_bonus")

# What each search uses besides `precision`. What is not here has no such search (a beam), or needs no setting.
USES: Mapping[tuple[SearchName, ScorerKind], tuple[str, ...]] = {
    ("greedy", "tokens"): ("fallback",),
    ("beam", "ctc"): ("beam", *FUSED, "nbest"),
    ("beam", "tokens"): ("beam", "ctc_weight", "length_power", *FUSED, "nbest", "fallback"),
    ("beam", "transducer"): ("beam", "length_power", *FUSED, "nbest"),
}

# The widest beams. A CTC model runs once for all hypotheses; the others run for each, with an output of its own.
WIDEST: Mapping[ScorerKind, int] = {"ctc": 10_000, "tokens": 200, "transducer": 200}


@dataclass(frozen=True, slots=True)
class LengthNorm:
    """Length normalization: a score is divided by ((`offset` + length) / (`offset` + 1)) ** `power`."""

    power: float
    offset: float = 0.0

    def divisor(self, lengths: Lengths) -> Lengths:
        """What scores of these lengths, the end included, are divided by."""
        divisor: Lengths = ((self.offset + lengths) / (self.offset + 1)) ** self.power
        return divisor


# Where a recipe leaves it open. NeMo ranks transducers by their mean; attention models would prefer stock phrases and
# loops to a short word, so theirs (arXiv 1609.08144) hardly tells one word from three, and still 10 tokens from 20.
LENGTH_NORMS: Mapping[ScorerKind, LengthNorm] = {"tokens": LengthNorm(0.4, 5.0), "transducer": LengthNorm(1.0)}
# Were defaults: recipes of older runs have them written out.
FORMER: Mapping[str, tuple[object, ...]] = {"length_power": (1.0,), "phrase_bonus": (0.5,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How to search for the best hypothesis."""

    search: Annotated[SearchName, Field(description="Greedy or beam search.")] = "greedy"
    beam: Annotated[
        int, Field(gt=0, le=10_000, description="Beam width: hypotheses to keep; more than 200 with CTC only.")
    ] = 8
    length_power: Annotated[
        float | None,
        Field(
            ge=0,
            le=100,
            description="Length normalization: hypotheses rank by score / length ** length_power; 0 prefers short ones "
            "(default: 1 for transducers, score / ((5 + length) / 6) ** 0.4 for attention models). Not for CTC.",
        ),
    ] = None
    fallback: Annotated[
        bool,
        Field(
            description="Temperature fallback: decode again when the output is repetitive or improbable. "
            "Attention models only."
        ),
    ] = False
    precision: Annotated[
        DecodingPrecision,
        Field(description="Precision of the model while decoding: bf16 and fp16 are faster on a GPU, int8 on a CPU."),
    ] = "fp32"
    ctc_weight: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Joint decoding: weight of the CTC prefix scores; the decoder has the rest. Family aed only.",
        ),
    ] = 0.0
    lm: Annotated[
        str | None,
        Field(min_length=1, description="ARPA n-gram model over the model's tokens, or in a CTC beam over words."),
    ] = None
    lm_weight: Annotated[
        float, Field(ge=0, le=1000, description="Weight of the language model's log-probabilities.")
    ] = 0.3
    lm_temperature: Annotated[
        float,
        Field(
            gt=0,
            le=100,
            description="Temperature of the language model; above 1 flattens its distribution.",
            json_schema_extra={"since": "0.2"},
        ),
    ] = 1.0
    phrases: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(
            description="Names and terms to boost in beam search, or a .txt file with one per line.",
            json_schema_extra={"since": "0.2"},
        ),
    ] = ()
    phrase_bonus: Annotated[
        float,
        Field(
            ge=0,
            le=1000,
            description="Boost of a complete phrase, in log-probability per character; too much finds phrases that "
            "are not in the audio.",
            json_schema_extra={"since": "0.2"},
        ),
    ] = 1.0
    batch: Annotated[
        int | None,
        Field(
            gt=0,
            le=100_000,
            description="Utterances decoded at once (default: four micro-batches of training).",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConfig(SearchConfig):
    """The search while training, and the one for the final scores."""

    final: Annotated[SearchConfig | None, Field(description="Search for the final scores (default: the same).")] = None

    @property
    def final_batch(self) -> int | None:
        """The batch for the final scores."""
        return (self.final.batch if self.final else None) or self.batch


def _of_beams() -> list[str]:
    """The settings that no greedy search uses."""
    greedy, beam = (
        {name for (search, _), names in USES.items() if search == wanted for name in names}
        for wanted in ("greedy", "beam")
    )
    return [each.name for each in fields(SearchConfig) if each.name in beam - greedy]


def unused_settings(decode: DecodeConfig) -> Iterator[tuple[str, str]]:
    """The keys that are set for a search which uses them with no model, and what to do about each."""
    usual = SearchConfig()
    for key, config in (("decode", decode), ("decode.final", decode.final)):
        if config is None:
            continue
        if config.search == "greedy":
            for name in _of_beams():
                if getattr(config, name) not in (getattr(usual, name), *FORMER.get(name, ())):
                    yield f"{key}.{name}", "greedy search does not use it: set search: beam, or remove it"
        elif config.lm is None:
            for name in ("lm_weight", "lm_temperature"):
                if getattr(config, name) != getattr(usual, name):
                    yield f"{key}.{name}", "needs a language model: set lm, or remove it"


def without_former_search(under: Node, over: Node) -> Node:
    """The settings below others that choose another search: those of the former one are left behind."""
    for section in ("decode", "decode.final"):
        former, chosen = (tree.find(f"{section}.search") for tree in (under, over))
        if former and chosen and former.value != chosen.value:
            for name in _of_beams():
                under = under.without(f"{section}.{name}")
        lm = over.find(f"{section}.lm")
        if lm and lm.value is None:  # a language model that is taken away takes its weight along
            under = under.without(f"{section}.lm_weight").without(f"{section}.lm_temperature")
    return under

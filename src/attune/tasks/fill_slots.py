"""Fill slots: the transcript with its slots tagged, learned with CTC over characters; slot-type F1 and slot-value CER.

Rows have a `text` and, as a label, the slot of every word in IOB tags: `O O B-artist I-artist`. What is learned is the
text with a begin and an end tag around each value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from attune.contracts import TaskType
from attune.errors import DataError
from attune.scoring.slots import SLOT_TYPE_F1, SLOT_VALUE_CER, Slot, score_slots
from attune.tasks._symbols import Symbols, frames_for, save_symbols
from attune.tasks.transcribe import CtcHeadConfig
from attune.types import (
    Json,
    Metric,
    Output,
    Prediction,
    Scores,
    ScoringContext,
    Target,
    Utterance,
    require_hypothesis,
    tokens_of,
)

if TYPE_CHECKING:
    from attune.tasks.transcribe.head import CtcHead

OUTSIDE, INSIDE = "O", "I-"
BEGIN, END = "B-", "E-"  # the tags around a value, which are one symbol each
TAG = re.compile(r"[BI]-.+")


@dataclass(frozen=True, slots=True)
class FillSlotsConfig:
    """Where the slots are written, and what is on top of the encoder."""

    label: Annotated[str, Field(description="Label with an IOB tag for each word.")] = "slots"
    head: CtcHeadConfig = field(default_factory=lambda: CtcHeadConfig(layers=2, width=1024))


class FillSlots:
    """The slots of each utterance and their values."""

    Config: ClassVar[type[FillSlotsConfig]] = FillSlotsConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (SLOT_TYPE_F1, SLOT_VALUE_CER)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: FillSlotsConfig, folder: Path) -> None:
        self.config = config
        self.symbols = Symbols.load(folder)

    @property
    def pieces(self) -> tuple[str, ...]:
        """How every token is written."""
        return self.symbols.pieces

    @staticmethod
    def missing_field(config: FillSlotsConfig, utterance: Utterance) -> str | None:
        """A text, and its slots."""
        if utterance.text is None:
            return "text"
        return None if config.label in utterance.labels else config.label

    @staticmethod
    def prepare(config: FillSlotsConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Collect characters and tags."""
        save_symbols(folder, {symbol for utterance in utterances for symbol in _symbols(config, utterance)})

    @staticmethod
    def can_reuse(config: FillSlotsConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether `folder` has every character and tag of these utterances."""
        known = set(Symbols.load(folder).pieces)
        return all(symbol in known for utterance in utterances for symbol in _symbols(config, utterance))

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """Characters and tags, and an end."""
        return self.symbols.encode(_symbols(self.config, utterance))

    def reference(self, utterance: Utterance) -> Json:
        """The text, and its slots in their order: {"text": "play queen", "slots": [["artist", "queen"]]}."""
        return read_symbols(_symbols(self.config, utterance))

    def frames_needed(self, target: Target) -> int:
        """One for each symbol, and a blank between two equal ones."""
        return frames_for(tokens_of(target))

    def head(self, width: int, stride: int) -> CtcHead:
        """Projection, bidirectional LSTM layers and a distribution over characters and tags for each frame."""
        from attune.tasks.transcribe.head import CtcHead

        config = self.config.head
        return CtcHead(width, config.width, config.layers, len(self.pieces), config.dropout)

    def read(self, output: Output) -> Json:
        """The text and the slots found."""
        return read_symbols(self.symbols.decode(require_hypothesis(output).tokens))

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Slot-type F1 and slot-value CER."""
        found = [each for each in predictions if not each.is_absent]
        values, counts = score_slots([(slots_of(each.reference), slots_of(each.value)) for each in found])
        return Scores(values, {**counts, "num_absent": len(predictions) - len(found)})


def read_symbols(symbols: Sequence[str]) -> Json:
    """Text and slots of characters and tags; a value ends at any tag, or with the text."""
    slots: list[Json] = []
    name: str | None = None
    value = text = ""
    for symbol in [*symbols, END]:
        if len(symbol) == 1:
            text, value = text + symbol, value + symbol
            continue
        if name is not None:
            slots.append([name, " ".join(value.split())])
        name, value = (symbol.removeprefix(BEGIN) if symbol.startswith(BEGIN) else None), ""
    return {"text": " ".join(text.split()), "slots": slots}


def slots_of(value: Json) -> list[Slot]:
    """The slots of a prediction or a reference; anything else is refused."""
    try:
        pairs: Any = value["slots"]  # type: ignore[index, call-overload]
        return [Slot(str(name), str(filler)) for name, filler in pairs]
    except (TypeError, KeyError, ValueError) as error:
        raise DataError(f"Expected slots as [[type, value], ...], found {str(value)[:80]}.") from error


def _symbols(config: FillSlotsConfig, utterance: Utterance) -> list[str]:
    """The characters of the text with a tag before and after each value."""
    if utterance.text is None or config.label not in utterance.labels:
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has no text or no label {config.label!r}. Add it "
            "to the row."
        )
    words, tags = utterance.text.split(), utterance.labels[config.label].split()
    if len(words) != len(tags):
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has {len(words)} words but {len(tags)} slot "
            "tags. Give each word one tag."
        )
    if wrong := next((tag for tag in tags if tag != OUTSIDE and not TAG.fullmatch(tag)), None):
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has the slot tag {wrong!r}; expected O, or B-NAME and "
            "I-NAME for the first and the further words of a value."
        )
    return [symbol for part in _parts(words, tags) for symbol in part]


def _parts(words: Sequence[str], tags: Sequence[str]) -> Iterator[Sequence[str]]:
    """Each word's characters with a space between two, and the tags that stand before or after it."""
    around = zip([OUTSIDE, *tags], words, tags, [*tags[1:], OUTSIDE], strict=False)
    for place, (before, word, tag, after) in enumerate(around):
        name = tag[2:]
        if place:
            yield " "
        if tag.startswith(BEGIN) or (tag != OUTSIDE and name != before[2:]):
            yield [BEGIN + name]
        yield word
        if tag != OUTSIDE and after != INSIDE + name:
            yield [END + name]


TASK: TaskType[FillSlotsConfig] = FillSlots

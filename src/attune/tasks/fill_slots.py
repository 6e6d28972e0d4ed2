"""Fill slots: the transcript with its slots tagged, learned with CTC over characters; slot-type F1 and slot-value CER.

Rows have a `text` and, as a label, the slot of every word in IOB tags: `O O B-artist I-artist`. What is learned is the
text with a begin and an end tag around each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from attune.contracts import TaskType
from attune.errors import DataError
from attune.scoring.slots import SLOT_TYPE_F1, SLOT_VALUE_CER, Slot, score_slots
from attune.scoring.texts import texts_of
from attune.tasks._symbols import Symbols, frames_for, save_symbols
from attune.tasks.transcribe import CtcHeadConfig
from attune.types import (
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

BEGIN, END = "B-", "E-"  # the tags around a value, which are one symbol each


@dataclass(frozen=True, slots=True)
class FillSlotsConfig:
    """Where the slots are written, and what is on top of the encoder."""

    label: Annotated[str, Field(description="The label with an IOB tag for each word.")] = "slots"
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

    def reference(self, utterance: Utterance) -> str:
        """The text with its tags: play B-artist queen E-artist."""
        return tagged_text(_symbols(self.config, utterance))

    def frames_needed(self, target: Target) -> int:
        """One for each symbol, and a blank between two equal ones."""
        return frames_for(tokens_of(target))

    def head(self, width: int, stride: int) -> CtcHead:
        """Projection, bidirectional LSTM layers and a distribution over characters and tags for each frame."""
        from attune.tasks.transcribe.head import CtcHead

        config = self.config.head
        return CtcHead(width, config.width, config.layers, len(self.pieces), config.dropout)

    def read(self, output: Output) -> str:
        """The text found, with its tags."""
        return tagged_text(self.symbols.decode(require_hypothesis(output).tokens))

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """Slot-type F1 and slot-value CER."""
        pairs = [pair for pair in zip(*texts_of(predictions), strict=True) if pair[1] is not None]
        values, counts = score_slots([(slots_of(reference), slots_of(str(found))) for reference, found in pairs])
        return Scores(values, {**counts, "num_absent": len(predictions) - len(pairs)})


def slots_of(text: str) -> list[Slot]:
    """The slots of a text with tags; a value ends at its own end tag, at the next begin tag, or with the text."""
    found: list[Slot] = []
    name: str | None = None
    words: list[str] = []
    for word in [*text.split(), END]:
        if word.startswith((BEGIN, END)):
            if name is not None:
                found.append(Slot(name, " ".join(words)))
            name, words = (word.removeprefix(BEGIN) if word.startswith(BEGIN) else None), []
        else:
            words.append(word)
    return found


def tagged_text(symbols: Sequence[str]) -> str:
    """Characters and tags as one text, with a space on both sides of each tag."""
    return " ".join("".join(symbol if len(symbol) == 1 else f" {symbol} " for symbol in symbols).split())


def _symbols(config: FillSlotsConfig, utterance: Utterance) -> list[str]:
    """The characters of the text with a tag before and after each value."""
    if utterance.text is None or config.label not in utterance.labels:
        raise DataError(f"{utterance.where}: utterance {utterance.id!r} lacks its text or the label {config.label!r}.")
    words, tags = utterance.text.split(), utterance.labels[config.label].split()
    if len(words) != len(tags):
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has {len(words)} words and {len(tags)} slot tags."
        )
    return [symbol for part in _parts(words, tags) for symbol in part]


def _parts(words: Sequence[str], tags: Sequence[str]) -> Iterator[Sequence[str]]:
    """Each word's characters with a space between two, and the tags that stand before or after it."""
    for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
        if place:
            yield " "
        if tag.startswith(BEGIN):
            yield [tag]
        yield word
        after = tags[place + 1] if place + 1 < len(tags) else "O"
        if tag != "O" and not after.startswith("I-"):
            yield [END + tag[2:]]


TASK: TaskType[FillSlotsConfig] = FillSlots

"""Recognize phonemes: the phones of an utterance, learned with CTC and scored by the phone error rate.

A lexicon turns words into phones: lines of `WORD P1 P2 …`, of which the first pronunciation of a word counts, and a
file may go before another. Without one, the text is phones already, with spaces between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from attune.contracts import TaskType
from attune.errors import DataError
from attune.files import write_text
from attune.metrics import Metric, Scores
from attune.scoring import bootstrap, edits
from attune.scoring.texts import texts_of
from attune.tasks._symbols import Symbols, frames_for, save_symbols
from attune.tasks.transcribe import CtcHeadConfig
from attune.types import Output, Prediction, ScoringContext, Target, Utterance, require_hypothesis, tokens_of

if TYPE_CHECKING:
    from attune.tasks.transcribe.head import CtcHead

PER = Metric("per", "%", False, "Phone error rate: phone edits per reference phone.")
LEXICON = "lexicon.txt"
Pronunciations = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RecognizePhonemesConfig:
    """How words become phones, and what is on top of the encoder."""

    lexicon: Annotated[
        tuple[str, ...],
        Field(description="Lexicon files; the first with the word is used. Without any, the text is phones."),
    ] = ()
    head: CtcHeadConfig = field(default_factory=lambda: CtcHeadConfig(layers=0, dropout=0.0))


class RecognizePhonemes:
    """The phones of each utterance."""

    Config: ClassVar[type[RecognizePhonemesConfig]] = RecognizePhonemesConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (PER,)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: RecognizePhonemesConfig, folder: Path) -> None:
        self.config = config
        self.symbols = Symbols.load(folder)
        self.lexicon = read_lexicon([folder / LEXICON]) if config.lexicon else None

    @property
    def pieces(self) -> tuple[str, ...]:
        """How every token is written."""
        return self.symbols.pieces

    @staticmethod
    def missing_field(config: RecognizePhonemesConfig, utterance: Utterance) -> str | None:
        """A text."""
        return None if utterance.text is not None else "text"

    @staticmethod
    def prepare(config: RecognizePhonemesConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Collect the phones of the training text; the lexicon is kept with the run."""
        lexicon = read_lexicon([Path(name).expanduser() for name in config.lexicon]) if config.lexicon else None
        save_symbols(folder, {phone for utterance in utterances for phone in phones_of(utterance, lexicon)})
        if lexicon is not None:
            lines = (f"{word} {' '.join(phones)}\n" for word, phones in sorted(lexicon.items()))
            write_text(folder / LEXICON, "".join(lines))

    @staticmethod
    def can_reuse(config: RecognizePhonemesConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether `folder` has every phone of these utterances."""
        lexicon = read_lexicon([Path(name).expanduser() for name in config.lexicon]) if config.lexicon else None
        if (folder / LEXICON).is_file() != (lexicon is not None):
            return False
        known = set(Symbols.load(folder).pieces)
        return all(phone in known for utterance in utterances for phone in phones_of(utterance, lexicon))

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The phones' numbers, and an end."""
        return self.symbols.encode(phones_of(utterance, self.lexicon))

    def reference(self, utterance: Utterance) -> str:
        """The phones."""
        return " ".join(phones_of(utterance, self.lexicon))

    def frames_needed(self, target: Target) -> int:
        """One for each phone, and a blank between two equal ones."""
        return frames_for(tokens_of(target))

    def head(self, width: int, stride: int) -> CtcHead:
        """A projection and a distribution over phones for each frame."""
        from attune.tasks.transcribe.head import CtcHead

        config = self.config.head
        return CtcHead(width, config.width, config.layers, len(self.pieces), config.dropout)

    def read(self, output: Output) -> str:
        """The phones found."""
        return " ".join(self.symbols.decode(require_hypothesis(output).tokens))

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """All phone edits over all reference phones."""
        pairs = [pair for pair in zip(*texts_of(predictions), strict=True) if pair[1] is not None]
        rows = [edits.count(reference.split(), str(found).split()) for reference, found in pairs]
        counts = {
            "num_edits": sum(row.total for row in rows),
            "num_scored_phones": sum(row.tokens for row in rows),
            "num_scored": len(rows),
            "num_absent": len(predictions) - len(rows),
        }
        per = bootstrap.percent(PER, [row.total for row in rows], [row.tokens for row in rows])
        return Scores({PER.name: per}, counts)


def read_lexicon(paths: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """The first pronunciation of every word; words are compared in upper case."""
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise DataError(f"Cannot read the lexicon {path}: {error.strerror}. Correct task.lexicon.") from error
        for line in lines:
            word, *phones = line.split() or ("",)
            if phones:
                found.setdefault(word.upper(), tuple(phones))
    return found


def phones_of(utterance: Utterance, lexicon: Pronunciations | None) -> tuple[str, ...]:
    """The phones of an utterance's text; a word that the lexicon does not have is an error."""
    if utterance.text is None:
        raise DataError(f"{utterance.where}: utterance {utterance.id!r} has no text. Add `text` to the row.")
    words = utterance.text.split()
    if lexicon is None:
        return tuple(words)
    unknown = [word for word in words if word.upper() not in lexicon]
    if unknown:
        raise DataError(
            f"{utterance.where}: {unknown[0]!r} is not in the lexicon. Add it to a file of task.lexicon, or set "
            "data.bad_rows=drop."
        )
    return tuple(phone for word in words for phone in lexicon[word.upper()])


TASK: TaskType[RecognizePhonemesConfig] = RecognizePhonemes

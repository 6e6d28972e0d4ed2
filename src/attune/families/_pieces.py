"""Text as pieces: of a SentencePiece model that came with another toolkit's weights, or of the task."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from attune.contracts import join_values
from attune.errors import ModelError
from attune.text.tokenizers.characters import UNREADABLE, collapse_whitespace
from attune.types import Json, Output, Target, Utterance, require_hypothesis, target_text


@dataclass(frozen=True)
class OwnPieces:
    """A SentencePiece model of other toolkits, as they use it."""

    path: Path

    @cached_property
    def processor(self) -> SentencePieceProcessor:
        """What splits and joins text."""
        try:
            return SentencePieceProcessor(model_proto=self.path.read_bytes())
        except (OSError, RuntimeError) as error:
            raise ModelError(f"{self.path} is not a valid SentencePiece model: {error}") from error

    @property
    def pieces(self) -> tuple[str, ...]:
        """How every label is written."""
        try:
            return tuple(self.processor.id_to_piece(label) for label in range(self.processor.get_piece_size()))
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.path} is damaged: a token in it is not UTF-8 text ({error}).") from error

    def encode(self, text: str) -> tuple[int, ...]:
        """The labels that spell a text."""
        return tuple(self.processor.encode(collapse_whitespace(text)))

    def decode(self, labels: tuple[int, ...]) -> str:
        """The text that labels spell; what they do not know is written as everywhere, whatever this model writes."""
        text, unknown = self.processor.decode(list(labels)), self.processor.decode([self.processor.unk_id()])
        return collapse_whitespace(text.replace(unknown, UNREADABLE) if unknown else text)


def with_end(pieces: Sequence[str], end: int) -> tuple[str, ...]:
    """How tokens are written: the one that ends a text as the end, for language models."""
    return (*pieces[:end], "</s>", *pieces[end + 1 :])


@dataclass(frozen=True, slots=True)
class PieceCodec:
    """Utterances to labels, and labels to text."""

    pieces: tuple[str, ...]  # without the blank of a transducer
    encode: Callable[[Utterance], tuple[int, ...]]
    decode: Callable[[tuple[int, ...]], str]
    begin: tuple[int, ...] = ()  # what decoding starts from

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The labels to learn."""
        return self.encode(utterance)

    def frames_needed(self, target: Target) -> int:
        """None in particular: attention may stay where it is, and a frame may emit several labels."""
        return 0

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """The same for all."""
        return self.begin

    def read(self, output: Output) -> str:
        """The text of a hypothesis."""
        return self.decode(require_hypothesis(output).tokens)

    def join(self, values: Sequence[Json], whole: Utterance) -> str:
        """Texts with a space between them."""
        return join_values(values)

    def describe(self, target: Target) -> str:
        """Label ids."""
        return target_text(target)

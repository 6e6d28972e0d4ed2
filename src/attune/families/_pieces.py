"""The SentencePiece model that came with another toolkit's weights."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from attune.errors import ModelError
from attune.text.tokenizers.characters import UNREADABLE, collapse_whitespace


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
        unknown = self.processor.decode([self.processor.unk_id()])
        return collapse_whitespace(self.processor.decode(list(labels)).replace(unknown, UNREADABLE))

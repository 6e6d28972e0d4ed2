"""SentencePiece: tokens of one or more characters, learned from the training text, the same ones every time."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from attune import files
from attune.errors import DataError, ModelError
from attune.text.protobuf import fields, written
from attune.text.tokenizers.characters import BLANK, BLANK_PIECE, UNKNOWN, UNREADABLE, tidy

_PIECE, _TRAINER = 1, 2  # the numbers that a model file has for its pieces and for how they were learned


@dataclass(frozen=True)
class SentencePieces:
    """A SentencePiece model whose piece 0 is the blank; an unknown character reads as �."""

    FILE: ClassVar[str] = "tokenizer.model"
    model: bytes

    @classmethod
    def learn(cls, texts: Iterable[str], kind: Literal["unigram", "bpe"], vocabulary: int) -> SentencePieces:
        """Find the `vocabulary` pieces that suit `texts`, blank and unknown included."""
        lines = [line for line in map(tidy, texts) if line]
        if not lines:
            raise DataError("There is no text to learn SentencePiece tokens from: every transcript is empty.")
        try:
            return cls(_train(lines, kind, vocabulary))
        except RuntimeError as error:
            raise DataError(_explain(str(error), kind, vocabulary)) from error

    @classmethod
    def load(cls, folder: Path) -> SentencePieces:
        """Read what `save` wrote."""
        return cls.read(folder / cls.FILE)

    @classmethod
    def read(cls, path: Path) -> SentencePieces:
        """A model file of attune's making."""
        try:
            pieces = cls(path.read_bytes())
            is_ours = pieces.model and pieces._processor.id_to_piece(BLANK) == BLANK_PIECE
        except (OSError, RuntimeError) as error:
            raise ModelError(f"Cannot read the tokenizer {path}: {error}") from error
        if not is_ours:
            raise ModelError(f"The first token of {path} is not {BLANK_PIECE}; it was not made by attune.")
        return pieces

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`."""
        with files.completed(folder / self.FILE) as partial:
            partial.write_bytes(self.model)

    @property
    def size(self) -> int:
        """How many tokens there are, the blank and the unknown included."""
        return int(self._processor.get_piece_size())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what every id means."""
        return hashlib.sha256(self.model).hexdigest()

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """How every token is written."""
        return tuple(self._processor.id_to_piece(token) for token in range(self.size))

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of the likeliest pieces of `text`."""
        return tuple(self._processor.encode(tidy(text)))

    def decode(self, ids: Sequence[int]) -> str:
        """The text that `ids` spell."""
        return tidy(self._processor.decode(list(ids)))

    def without_blank(self) -> bytes:
        """A SentencePiece model of the same pieces less the blank, each with the number before: as others have it."""
        first, trainer, rest = b"", b"", []
        for number, field, content in fields(self.model):
            if number == _PIECE and not first:
                first = field
            elif number == _TRAINER:
                trainer = content
            else:
                rest.append(field)
        # The last of several values counts: the number of pieces, of the unknown, and of a padding that is not there.
        settings = ((4, self.size - 1), (40, UNKNOWN - 1), (43, (1 << 64) - 1))
        trainer += b"".join(written(number << 3) + written(value) for number, value in settings)
        return b"".join([*rest, written(_TRAINER << 3 | 2), written(len(trainer)), trainer])

    @cached_property
    def _processor(self) -> SentencePieceProcessor:
        return SentencePieceProcessor(model_proto=self.model)


def _train(lines: list[str], kind: str, vocabulary: int) -> bytes:
    model = io.BytesIO()
    longest = max(len(line.encode()) for line in lines) + 1
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=vocabulary,
        pad_id=BLANK,
        pad_piece=BLANK_PIECE,
        unk_id=UNKNOWN,
        unk_surface=UNREADABLE,
        bos_id=-1,
        eos_id=-1,
        character_coverage=1.0,
        normalization_rule_name="identity",  # the recipe's normalizer has been at work already
        max_sentence_length=max(10, longest),  # longer ones would be left out in silence; 10 is the least it takes
        num_threads=1,  # sums of floats come out the same every time
        minloglevel=2,  # errors only
    )
    return model.getvalue()


def _explain(message: str, kind: str, vocabulary: int) -> str:
    if most := re.search(r"value <= (\d+)", message):
        return f"The text is too small for {vocabulary} {kind} tokens; the most it can give is {most[1]}."
    if least := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return f"{vocabulary} {kind} tokens are too few for the characters of the text; it needs at least {least[1]}."
    return f"SentencePiece could not learn {vocabulary} {kind} tokens from the text: {message}"

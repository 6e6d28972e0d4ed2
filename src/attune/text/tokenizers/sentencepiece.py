"""SentencePiece tokens (BPE or unigram), trained deterministically on the training text."""

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
from attune.text.protobuf import encode_varint, fields
from attune.text.tokenizers.characters import BLANK, BLANK_PIECE, UNKNOWN, UNREADABLE, collapse_whitespace

TRAIN = "attune tokenizer DATA --to FILE"  # how to get one
_PIECE, _TRAINER = 1, 2  # field numbers of a model file: its pieces, and its trainer settings


@dataclass(frozen=True)
class SentencePieceTokenizer:
    """A SentencePiece model whose piece 0 is the blank; an unknown character reads as �."""

    FILE: ClassVar[str] = "tokenizer.model"
    model: bytes

    @classmethod
    def learn(cls, texts: Iterable[str], kind: Literal["unigram", "bpe"], vocabulary: int) -> SentencePieceTokenizer:
        """Train `vocabulary` pieces on `texts`, with blank and unknown."""
        lines = [line for line in map(collapse_whitespace, texts) if line]
        if not lines:
            raise DataError("Cannot train a SentencePiece tokenizer: every transcript is empty.")
        try:
            return cls(_train(lines, kind, vocabulary))
        except RuntimeError as error:
            raise DataError(_explain(str(error), kind, vocabulary)) from error

    @classmethod
    def load(cls, folder: Path) -> SentencePieceTokenizer:
        """Read what `save` wrote."""
        return cls.read(folder / cls.FILE)

    @classmethod
    def read(cls, path: Path) -> SentencePieceTokenizer:
        """Read a model file that attune wrote."""
        try:
            pieces = cls(path.read_bytes())
            is_ours = pieces.model and pieces.pieces[BLANK] == BLANK_PIECE
        except FileNotFoundError as error:
            raise ModelError(f"The tokenizer {path} does not exist. Check the path, or train it: {TRAIN}") from error
        except (OSError, RuntimeError, UnicodeDecodeError, IndexError) as error:
            raise ModelError(f"Cannot read the tokenizer {path}: {error}. Copy or train it again.") from error
        if not is_ours:
            raise ModelError(
                f"{path} was not written by attune: its first token is not {BLANK_PIECE}. Train one: {TRAIN}"
            )
        return pieces

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`."""
        with files.completed(folder / self.FILE) as partial:
            partial.write_bytes(self.model)

    @property
    def size(self) -> int:
        """The vocabulary size, with blank and unknown."""
        return int(self._processor.get_piece_size())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the vocabulary."""
        return hashlib.sha256(self.model).hexdigest()

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of every token."""
        return tuple(self._processor.id_to_piece(token) for token in range(self.size))

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of `text`."""
        return tuple(self._processor.encode(collapse_whitespace(text)))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return collapse_whitespace(self._processor.decode(list(ids)))

    def without_blank(self) -> bytes:
        """The SentencePiece model without the blank, ids shifted by one, as other toolkits expect it."""
        first, trainer, rest = b"", b"", []
        for number, field, content in fields(self.model):
            if number == _PIECE and not first:
                first = field
            elif number == _TRAINER:
                trainer = content
            else:
                rest.append(field)
        # The last of repeated values counts: the vocabulary size, the id of unknown, and no padding.
        settings = ((4, self.size - 1), (40, UNKNOWN - 1), (43, (1 << 64) - 1))
        trainer += b"".join(encode_varint(number << 3) + encode_varint(value) for number, value in settings)
        return b"".join([*rest, encode_varint(_TRAINER << 3 | 2), encode_varint(len(trainer)), trainer])

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
        normalization_rule_name="identity",  # the recipe's normalizer was applied already
        max_sentence_length=max(10, longest),  # longer ones would be skipped silently; 10 is the minimum
        num_threads=1,  # deterministic sums of floats
        minloglevel=2,  # errors only
    )
    return model.getvalue()


def _explain(message: str, kind: str, vocabulary: int) -> str:
    if most := re.search(r"value <= (\d+)", message):
        return f"The text is too small for {vocabulary} {kind} tokens. Use at most {most[1]}."
    if least := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return f"{vocabulary} {kind} tokens are too few for the characters of the text. Use at least {least[1]}."
    return f"SentencePiece could not train {vocabulary} {kind} tokens: {message}"

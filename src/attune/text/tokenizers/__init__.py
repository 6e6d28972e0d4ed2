"""Text to token ids and back. Token 0 is the CTC blank, 1 stands for what the training text did not have.

A tokenizer is one file in its folder, so the folder is complete as soon as the file has its name. White space counts
as one space between words, in every kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from attune.errors import ConfigError, ModelError
from attune.text.tokenizers.characters import Characters
from attune.text.tokenizers.pieces import SentencePieces

Kind = Literal["characters", "unigram", "bpe"]


class Tokenizer(Protocol):
    """What a model's outputs stand for; two with the same fingerprint give every id the same meaning."""

    @property
    def size(self) -> int:
        """How many tokens there are, the blank and the unknown included."""

    @property
    def fingerprint(self) -> str:
        """A hash of what every id means."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """How every token is written; a space is ▁, and the first two are the blank and the unknown."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids that spell `text`."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text that `ids` spell."""

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`."""


def train(kind: Kind, texts: Iterable[str], folder: Path, vocabulary: int | None = None) -> Tokenizer:
    """Learn a tokenizer and save it; `vocabulary` is the size of a SentencePiece one (unigram, bpe), blank included."""
    tokenizer = _learn(kind, texts, vocabulary)
    # A tokenizer of another kind from an earlier run would make the folder ambiguous.
    for name in (Characters.FILE, SentencePieces.FILE):
        (folder / name).unlink(missing_ok=True)
    tokenizer.save(folder)
    return tokenizer


def load(folder: Path) -> Tokenizer:
    """The tokenizer saved in `folder`, of whichever kind it is."""
    if (folder / Characters.FILE).exists():
        return Characters.load(folder)
    if (folder / SentencePieces.FILE).exists():
        return SentencePieces.load(folder)
    raise ModelError(f"No tokenizer in {folder}: it has neither {Characters.FILE} nor {SentencePieces.FILE}.")


def _learn(kind: Kind, texts: Iterable[str], vocabulary: int | None) -> Tokenizer:
    if kind == "characters":
        return Characters.learn(texts)
    if vocabulary is None:
        raise ConfigError(f"{kind} tokens need `vocabulary`, how many there shall be: 1000, for instance.")
    return SentencePieces.learn(texts, kind, vocabulary)

"""Text to token ids and back. Token 0 is the CTC blank, 1 the unknown token.

A tokenizer is one file in its folder, so the folder is complete as soon as the file has its name. Every kind collapses
white space to one space between words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from attune.errors import ConfigError, ModelError
from attune.text.tokenizers.characters import CharacterTokenizer
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer

Kind = Literal["characters", "unigram", "bpe"]


class Tokenizer(Protocol):
    """The vocabulary of a model's outputs; tokenizers with equal fingerprints have identical vocabularies."""

    @property
    def size(self) -> int:
        """The vocabulary size, with blank and unknown."""

    @property
    def fingerprint(self) -> str:
        """A hash of the vocabulary."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of every token; a space is ▁, and the first two are blank and unknown."""

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of `text`."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`."""


def train(kind: Kind, texts: Iterable[str], folder: Path, vocabulary: int | None = None) -> Tokenizer:
    """Train a tokenizer and save it; `vocabulary` is the size of a SentencePiece one (unigram, bpe), with blank."""
    tokenizer = _learn(kind, texts, vocabulary)
    # A tokenizer of another kind from an earlier run would make the folder ambiguous.
    for name in (CharacterTokenizer.FILE, SentencePieceTokenizer.FILE):
        (folder / name).unlink(missing_ok=True)
    tokenizer.save(folder)
    return tokenizer


def load(folder: Path) -> Tokenizer:
    """The tokenizer saved in `folder`, of either kind."""
    if (folder / CharacterTokenizer.FILE).exists():
        return CharacterTokenizer.load(folder)
    if (folder / SentencePieceTokenizer.FILE).exists():
        return SentencePieceTokenizer.load(folder)
    raise ModelError(f"{folder} has no tokenizer: neither {CharacterTokenizer.FILE} nor {SentencePieceTokenizer.FILE}.")


def _learn(kind: Kind, texts: Iterable[str], vocabulary: int | None) -> Tokenizer:
    if kind == "characters":
        return CharacterTokenizer.learn(texts)
    if vocabulary is None:
        raise ConfigError(f"{kind} tokens need a vocabulary size. Set `vocabulary`, e.g. 1000.")
    return SentencePieceTokenizer.learn(texts, kind, vocabulary)

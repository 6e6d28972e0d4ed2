"""A token per character of the training text, space included."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from attune import files
from attune.errors import DataError, ModelError
from attune.files import parse_json

BLANK, UNKNOWN = 0, 1
UNREADABLE = "\N{REPLACEMENT CHARACTER}"  # the text of the unknown token
BLANK_PIECE, UNKNOWN_PIECE, SPACE_PIECE = "<blank>", "<unk>", "▁"


@dataclass(frozen=True)
class CharacterTokenizer:
    """Sorted characters with ids from 2; the blank reads as nothing, an unknown character as �."""

    FILE: ClassVar[str] = "characters.json"
    characters: tuple[str, ...]

    @classmethod
    def learn(cls, texts: Iterable[str]) -> CharacterTokenizer:
        """Collect the characters of `texts`."""
        characters = {character for text in texts for character in collapse_whitespace(text)}
        if not characters:
            raise DataError("Cannot train a character tokenizer: every transcript is empty.")
        return cls(tuple(sorted(characters)))

    @classmethod
    def load(cls, folder: Path) -> CharacterTokenizer:
        """Read what `save` wrote."""
        path = folder / cls.FILE
        try:
            characters = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"Cannot read the tokenizer {path}: {error}") from error
        is_alphabet = isinstance(characters, list) and all(isinstance(one, str) and len(one) == 1 for one in characters)
        if not is_alphabet or not characters or len(set(characters)) < len(characters):
            raise ModelError(f"{path} is not a list of unique single characters. Start a new run.")
        return cls(tuple(characters))

    def save(self, folder: Path) -> None:
        """Write the tokenizer into `folder`."""
        files.write_text(folder / self.FILE, json.dumps(self.characters, ensure_ascii=False) + "\n")

    @property
    def size(self) -> int:
        """The vocabulary size, with blank and unknown."""
        return len(self._tokens)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the vocabulary."""
        return hashlib.sha256("\0".join(("characters", *self.characters)).encode()).hexdigest()

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of every token, as in SentencePiece."""
        return (BLANK_PIECE, UNKNOWN_PIECE, *(SPACE_PIECE if one == " " else one for one in self.characters))

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of the characters of `text`."""
        return tuple(self._ids.get(character, UNKNOWN) for character in collapse_whitespace(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        return collapse_whitespace("".join(self._tokens[token] for token in ids))

    @cached_property
    def _tokens(self) -> tuple[str, ...]:
        return ("", UNREADABLE, *self.characters)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {character: token for token, character in enumerate(self.characters, start=UNKNOWN + 1)}


def collapse_whitespace(text: str) -> str:
    """The words of `text` with a single space between them."""
    return " ".join(text.split())

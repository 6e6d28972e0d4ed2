"""A vocabulary of symbols (phones, characters, tags) for CTC heads: blank, end and unknown, then the symbols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from attune.tasks._names import read_names, write_names

FILE = "symbols.json"
SPECIAL = ("<blank>", "</s>", "<unk>")
END, UNKNOWN = 1, 2


@dataclass(frozen=True, slots=True)
class Symbols:
    """How every token is written. As in SUPERB, a target ends with an end."""

    pieces: tuple[str, ...]

    @classmethod
    def load(cls, folder: Path) -> Symbols:
        """The symbols that were saved to a folder."""
        return cls((*SPECIAL, *read_names(folder / FILE)))

    def encode(self, symbols: Iterable[str]) -> tuple[int, ...]:
        """Token ids, with the end."""
        ids = {symbol: number for number, symbol in enumerate(self.pieces)}
        return (*(ids.get(symbol, UNKNOWN) for symbol in symbols), END)

    def decode(self, tokens: Sequence[int]) -> list[str]:
        """Symbols up to the end, or all of them."""
        end = tokens.index(END) if END in tokens else len(tokens)
        return [self.pieces[token] for token in tokens[:end]]


def save_symbols(folder: Path, symbols: Iterable[str]) -> None:
    """Write the vocabulary of these symbols, sorted."""
    write_names(folder / FILE, sorted(set(symbols)))


def frames_for(tokens: Sequence[int]) -> int:
    """The fewest frames in which CTC can emit the tokens: one each, and a blank between two equal ones."""
    return len(tokens) + sum(left == right for left, right in pairwise(tokens))

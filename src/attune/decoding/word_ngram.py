"""A word n-gram model in a beam over smaller tokens: it scores each word where the word ends.

The letters of a word that is not over yet are a hash, which each token continues; where a word ends, its hash is looked
up among those of the model's words, and one that the model does not have counts as its <unk>. Within a word, a beam
would know nothing of that and lose the right one: so letters cost what the most frequent word that they begin is less
frequent than any, until the word itself takes the place of that.
"""

# R rows, V tokens, W words of the model, P beginnings of words
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from attune.decoding._phrase_tree import TokenTexts, folded
from attune.decoding.ngram import BEGIN, END, UNKNOWN, NGram, read_arpa, words_of
from attune.types import States

FACTOR = 1_099_511_628_211  # FNV's prime: odd, and it mixes all bits
LEAST_SPELLED = 0.5  # of a file's words that the tokens can spell


class WordNGram:
    """A `LanguageModel` over tokens, of an n-gram model over words."""

    def __init__(self, words: Sequence[str], model: NGram, texts: TokenTexts) -> None:
        """`model` has the words by their place; <unk> and </s> are among them."""
        device = model.keys.device
        self.model, self.unknown, self.end = model, words.index(UNKNOWN), words.index(END)
        hashes = [_hash(folded(word)) for word in words]
        order = sorted(range(len(words)), key=hashes.__getitem__)
        self.hashes = torch.tensor([hashes[place] for place in order], device=device)  # (W,)
        self.places = torch.tensor(order, device=device)
        self._look_ahead(words)
        surfaces = [surface or b"" for surface in texts.surfaces]
        letters = [surface.strip(b" ") for surface in surfaces]
        self.is_break = torch.tensor([surface[:1] == b" " for surface in surfaces], device=device)  # (V,)
        # What each token does to the hash of a word
        self.added = torch.tensor([_hash(each) for each in letters], device=device)
        self.factors = torch.tensor([_signed(pow(FACTOR, len(each), 2**64)) for each in letters], device=device)

    def _look_ahead(self, words: Sequence[str]) -> None:
        """What each beginning of a word is worth (P,): its most frequent word, as compared with that of all."""
        places = torch.arange(len(words), device=self.hashes.device)
        alone: list[float] = self.model.log_prob(torch.zeros_like(places), places).tolist()
        best: dict[int, float] = {}
        for word, log_prob in zip(words, alone, strict=True):
            found = 0
            for byte in folded(word) if word not in (UNKNOWN, END) else b"":
                found = _hash(bytes([byte]), found)
                best[found] = max(best.get(found, log_prob), log_prob)
        known = sorted(best)
        self.beginnings = torch.tensor(known, device=self.hashes.device)
        # The last is that of letters which begin no word.
        worths = torch.tensor([*(best[each] for each in known), alone[self.unknown]], device=self.hashes.device)
        self.worths = (worths - worths.max()).clamp(max=0)

    def start(self, rows: int) -> tuple[Tensor, States]:
        """Nothing is over yet."""
        nodes = torch.full((rows,), self.model.first, device=self.is_break.device)
        return self._gains(nodes, torch.zeros_like(nodes)), (nodes, torch.zeros_like(nodes))

    def score(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """A token that begins a word ends the one before it."""
        nodes, hashes = states
        is_break = self.is_break[labels]
        nodes = torch.where(is_break & (hashes != 0), self.model.after(nodes, self._words(hashes)), nodes)
        hashes = hashes.masked_fill(is_break, 0) * self.factors[labels] + self.added[labels]
        return self._gains(nodes, hashes), (nodes, hashes)

    def finish(self, states: States) -> Tensor:
        """The last word, and the end of the sentence."""
        nodes, hashes = states
        last = self._word(nodes, hashes) - self._begun(hashes)
        nodes = torch.where(hashes != 0, self.model.after(nodes, self._words(hashes)), nodes)
        return last + self.model.log_prob(nodes, torch.full_like(nodes, self.end))

    def _gains(self, nodes: Tensor, hashes: Tensor) -> Tensor:
        """What each token adds (R, V): the log-probability of the word that it ends, and what it begins is worth."""
        longer = self._begun(hashes[:, None] * self.factors + self.added)
        ended = self._word(nodes, hashes)[:, None] + self._begun(self.added)
        return torch.where(self.is_break, ended, longer) - self._begun(hashes)[:, None]

    def _begun(self, hashes: Tensor) -> Tensor:
        """What letters are worth that may begin a word."""
        at = torch.searchsorted(self.beginnings, hashes)
        is_known = self.beginnings[at.clamp(max=len(self.beginnings) - 1)] == hashes
        return self.worths[torch.where(is_known, at, len(self.beginnings))].masked_fill(hashes == 0, 0)

    def _word(self, nodes: Tensor, hashes: Tensor) -> Tensor:
        """The log-probability of the word so far, if it ended here (R,)."""
        return self.model.log_prob(nodes, self._words(hashes)).masked_fill(hashes == 0, 0)

    def _words(self, hashes: Tensor) -> Tensor:
        at = torch.searchsorted(self.hashes, hashes).clamp(max=len(self.hashes) - 1)
        return torch.where(self.hashes[at] == hashes, self.places[at], self.unknown)


def read_word_arpa(path: Path, pieces: Sequence[str], device: torch.device) -> WordNGram | None:
    """The word model in an ARPA file, for a beam over these tokens; None where these can hardly spell its words.

    Words are compared in folded letters.
    """
    words = [word for word in words_of(path) if word not in (BEGIN, END, UNKNOWN)]
    texts = TokenTexts(pieces)
    spelled = sum(not texts.unwritable(folded(word)) for word in words)
    if not words or spelled < LEAST_SPELLED * len(words):
        return None
    known = [UNKNOWN, END, *words]
    return WordNGram(known, read_arpa(path, known, device, known.index(END)), texts)


def _hash(text: bytes, found: int = 0) -> int:
    """That of some letters, after those of a hash."""
    for byte in text:
        found = (found * FACTOR + byte + 1) % 2**64
    return _signed(found)


def _signed(value: int) -> int:
    """As a number of 64 bits with a sign, which tensors have."""
    return value - 2**64 if value >= 2**63 else value

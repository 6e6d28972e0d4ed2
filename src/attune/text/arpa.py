"""N-gram models as ARPA files, and how probable they find a text."""

# N tokens of the text
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attune.files import completed
from attune.text.kneser_ney import Ints, NGramModel, NGramOrder

LINES_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class TextLikelihood:
    """How probable a text is; the end of each sentence counts as a word."""

    log_prob: float  # natural
    words: int
    unknown: int  # words that the model does not have, which count as <unk>

    @property
    def perplexity(self) -> float:
        """The inverse geometric mean probability of a word, ends included."""
        return math.exp(-self.log_prob / max(1, self.words))


def write_arpa(model: NGramModel, path: Path) -> None:
    """Write an ARPA file, which appears whole."""
    with completed(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {number}={len(each.keys)}\n" for number, each in enumerate(model.orders, start=1))
        texts: list[str] = [""]
        for number, each in enumerate(model.orders, start=1):
            file.write(f"\n\\{number}-grams:\n")
            texts = _texts(model, each, texts)
            file.writelines(_lines(each, texts, is_highest=number == len(model.orders)))
        file.write("\n\\end\\\n")


def _texts(model: NGramModel, order: NGramOrder, contexts: Sequence[str]) -> list[str]:
    """The n-grams of an order as they are written."""
    pairs = zip(order.contexts.tolist(), order.words.tolist(), strict=True)
    return [f"{contexts[context]} {model.words[word]}".lstrip(" ") for context, word in pairs]


def _lines(order: NGramOrder, texts: Sequence[str], is_highest: bool) -> Iterator[str]:
    for start in range(0, len(texts), LINES_AT_ONCE):
        part = slice(start, start + LINES_AT_ONCE)
        rows = zip(order.log_probs[part].tolist(), texts[part], order.backoffs[part].tolist(), strict=True)
        if is_highest:
            yield from (f"{log_prob:.7g}\t{text}\n" for log_prob, text, _ in rows)
        else:
            yield from (f"{log_prob:.7g}\t{text}\t{backoff:.7g}\n" for log_prob, text, backoff in rows)


def likelihood(model: NGramModel, sentences: Iterable[Sequence[str]]) -> TextLikelihood:
    """How probable the model finds some sentences."""
    numbers = {word: number for number, word in enumerate(model.words)}
    ids: list[int] = []
    places: list[int] = []
    unknown = 0
    for sentence in sentences:
        own = [numbers.get(word, 0) for word in sentence]
        unknown += own.count(0)
        ids += [1, *own, 2]
        places += range(len(own) + 2)  # in the sentence
    found = _log_probs(model, np.array(ids, np.int64), np.array(places, np.int64))
    return TextLikelihood(float(found.sum()) * math.log(10), len(found), unknown)


def _log_probs(model: NGramModel, ids: Ints, places: Ints) -> NDArray[np.float64]:
    """The log-probability of each token but <s> (N,), base 10."""
    here = np.flatnonzero(places > 0)
    total, is_found = np.zeros(len(here)), np.zeros(len(here), bool)
    grams = _grams(model, ids, places)  # by length: which n-gram ends at each place, or -1
    for length in range(len(model.orders), 0, -1):
        own = grams[length - 1][here]
        is_here = (own >= 0) & ~is_found
        total[is_here] += model.orders[length - 1].log_probs[own[is_here]]
        is_found |= is_here
        if length > 1:  # otherwise at the cost of the context's backoff, if that is known
            context = grams[length - 2][here - 1]
            pays = ~is_found & (context >= 0)
            total[pays] += model.orders[length - 2].backoffs[context[pays]]
    return total


def _grams(model: NGramModel, ids: Ints, places: Ints) -> list[Ints]:
    """For each length the number of the n-gram that ends at each place; -1 where the model has none."""
    found = [ids]
    for length, order in enumerate(model.orders[1:], start=2):
        context = np.where(places >= length - 1, np.append([-1], found[-1][:-1]), -1)
        keys = context * len(model.words) + ids
        at = np.minimum(np.searchsorted(order.keys, keys), max(0, len(order.keys) - 1))
        is_known = (context >= 0) & (order.keys[at] == keys) if len(order.keys) else np.zeros(len(ids), bool)
        found.append(np.where(is_known, at, -1))
    return found

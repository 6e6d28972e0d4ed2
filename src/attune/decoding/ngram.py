"""An n-gram language model over a model's own tokens, read from an ARPA file and evaluated for many rows at once.

Words of the file are the tokens as the tokenizer writes them (SentencePiece pieces, such as `▁the`). A state is a node:
the longest suffix of the tokens so far that the file has as a context. From there a token's probability is found at
the node, or else, at the cost of the node's backoff, at the next shorter suffix.
"""

# R rows, V tokens, M nodes, E n-grams
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from attune.errors import ModelError
from attune.types import States

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
LN_10 = math.log(10)
SECTION = re.compile(r"\\(?:(\d+)-grams:|data\\|end\\)")
NEVER = -99 * LN_10  # how the format writes probability 0, such as that of <s>
GZIP = b"\x1f\x8b"  # how such a file begins
SHOWN_WORDS = 5

Gram = tuple[int, ...]
Entries = Mapping[Gram, tuple[float, float]]  # log-probability and backoff


class NGram:
    """A `LanguageModel`. Its tables are on one device, and no row depends on the others."""

    def __init__(self, entries: Entries, tokens: int, device: torch.device) -> None:
        """`entries` are n-grams of ids below `tokens`; that number itself stands for the start of a sentence."""
        self.tokens = torch.arange(tokens, device=device)
        self.order = max(map(len, entries))
        known = {gram[:-1] for gram in entries} | {gram for gram, (_, backoff) in entries.items() if backoff}
        contexts = sorted(known, key=lambda gram: (len(gram), gram))
        nodes = {gram: node for node, gram in enumerate(contexts)}  # the empty one is node 0
        edges = sorted((nodes[gram[:-1]] * (tokens + 1) + gram[-1], gram) for gram in entries)
        self.first = _longest(nodes, (tokens,))
        self.keys = torch.tensor([key for key, _ in edges], device=device)  # (E,) node and token as one number
        self.log_probs = torch.tensor([entries[gram][0] for _, gram in edges], device=device)
        self.targets = torch.tensor([_longest(nodes, gram) for _, gram in edges], device=device)
        self.links = torch.tensor([_longest(nodes, gram[1:]) for gram in contexts], device=device)  # (M,)
        backoffs = [entries[gram][1] if gram in entries else 0.0 for gram in contexts]
        self.backoffs = torch.tensor(backoffs, device=device)

    def start(self, rows: int) -> tuple[Tensor, States]:
        """The log-probabilities of the first token of a sentence."""
        nodes = torch.full((rows,), self.first, device=self.keys.device)
        return self._log_probs(nodes), (nodes,)

    def score(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """Those of the tokens after the labels."""
        after = self.after(states[0], labels)
        return self._log_probs(after), (after,)

    def after(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """The contexts of these (R,) with one more label each (R,)."""
        after, is_found = torch.zeros_like(nodes), torch.zeros_like(nodes, dtype=torch.bool)
        for _ in range(self.order):
            places, is_here = self._find(nodes, labels)
            after = torch.where(is_here & ~is_found, self.targets[places], after)
            is_found = is_found | is_here
            nodes = self.links[nodes]
        return after

    def log_prob(self, nodes: Tensor, labels: Tensor) -> Tensor:
        """The log-probability of one label after each context (R,)."""
        return self._found(nodes, labels)

    def _log_probs(self, nodes: Tensor) -> Tensor:
        """The log-probabilities (R, V) of every token after these contexts (R,)."""
        return self._found(nodes[:, None], self.tokens)

    def _found(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """Those of tokens after contexts, as far as the two broadcast."""
        found, is_found = torch.zeros(1, device=nodes.device), torch.zeros(1, dtype=torch.bool, device=nodes.device)
        for _ in range(self.order):
            places, is_here = self._find(nodes, tokens)
            gains = torch.where(is_here, self.log_probs[places], self.backoffs[nodes])
            found, is_found = torch.where(is_found, found, found + gains), is_found | is_here
            nodes = self.links[nodes]
        return found

    def _find(self, nodes: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The places of the n-grams of these contexts and tokens, and whether the file has them."""
        keys = nodes * (len(self.tokens) + 1) + tokens
        places = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        return places, self.keys[places] == keys


def read_arpa(path: Path, pieces: Sequence[str], device: torch.device, end: int | None = None) -> NGram:
    """The model in an ARPA file over these tokens; one over anything else is refused.

    `end` is the token whose probability is that of the file's </s>; without one, ends of sentences are left out.
    """
    vocabulary = len(pieces) if end is None else max(len(pieces), end + 1)
    ids = {piece: index for index, piece in enumerate(pieces)} | {BEGIN: vocabulary}
    ids.pop(END, None)
    entries, unknown = _entries(path, ids if end is None else {**ids, END: end})
    if not (seen := _seen(entries, vocabulary)):
        raise ModelError(_unfit(path, ()))
    lowest = min(seen) if unknown is None else unknown
    for token in range(vocabulary):  # each has a probability: otherwise nothing that contains it could be found
        entries.setdefault((token,), (lowest, 0.0))
    return NGram(entries, vocabulary, device)


def words_of(path: Path) -> list[str]:
    """The single words of an ARPA file."""
    return [words[0] for words, _, _ in _lines(path) if len(words) == 1]


def _entries(path: Path, ids: Mapping[str, int]) -> tuple[dict[Gram, tuple[float, float]], float | None]:
    """The n-grams of a file over these words, and the log-probability of an unknown one, if it has that."""
    entries: dict[Gram, tuple[float, float]] = {}
    strangers: list[str] = []
    unknown: float | None = None
    for words, log_prob, backoff in _lines(path):
        if words == [UNKNOWN]:
            unknown = log_prob
        if any(word in (UNKNOWN, END) and word not in ids for word in words):
            continue  # there every token is known, or no sentence ends
        if all(word in ids for word in words):
            entries[tuple(ids[word] for word in words)] = (log_prob, backoff)
        elif len(words) == 1:
            strangers += words
    if strangers:
        raise ModelError(_unfit(path, strangers))
    return entries, unknown


def _seen(entries: Entries, vocabulary: int) -> list[float]:
    """The log-probabilities of the single tokens that can be emitted."""
    single = (log_prob for gram, (log_prob, _) in entries.items() if len(gram) == 1 and gram[0] < vocabulary)
    return [log_prob for log_prob in single if log_prob > NEVER]


def _longest(nodes: Mapping[Gram, int], gram: Gram) -> int:
    """The node of the longest suffix of an n-gram that has one."""
    return next(nodes[gram[start:]] for start in range(len(gram) + 1) if gram[start:] in nodes)


def _lines(path: Path) -> Iterator[tuple[list[str], float, float]]:
    """Words, natural log-probability and backoff of every n-gram."""
    try:
        with path.open("rb") as file:
            if file.read(len(GZIP)) == GZIP:
                raise ModelError(f"{path} is compressed. Unpack it first: gunzip {path}")
        # Not splitlines() nor a plain split(): tokens may hold spaces and line separators of other scripts.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not a valid ARPA file: {error}") from error
    order = 0
    for number, line in enumerate(lines, start=1):
        section = SECTION.match(line)
        if section:
            order = int(section[1] or 0)
        elif order and line.strip("\t\r "):
            try:
                yield _entry([field for field in line.strip("\r").replace("\t", " ").split(" ") if field], order)
            except ValueError as error:
                raise ModelError(f"{path}, line {number}: expected a number, {order} words and a backoff.") from error


def _entry(fields: Sequence[str], order: int) -> tuple[list[str], float, float]:
    log_prob, *words = fields[: order + 1]
    if len(words) < order or len(fields) > order + 2:
        raise ValueError
    words = [UNKNOWN if word == UNKNOWN.upper() else word for word in words]  # as some tools write it
    return words, _natural(log_prob), sum(map(_natural, fields[order + 1 :]))


def _natural(text: str) -> float:
    """The natural logarithm of what is written base 10; some tools write -inf."""
    value = float(text) * LN_10
    if math.isnan(value):
        raise ValueError
    return max(value, NEVER)


def _unfit(path: Path, strangers: Sequence[str]) -> str:
    shown = ", ".join(map(repr, strangers[:SHOWN_WORDS]))
    more = f" and {len(strangers) - SHOWN_WORDS} more" if len(strangers) > SHOWN_WORDS else ""
    found = f"its words {shown}{more} are not tokens of the model" if strangers else "it has no n-grams"
    return f"{path} does not fit this model: {found}. Train it on text tokenized by the model's own tokenizer."

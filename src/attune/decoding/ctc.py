"""CTC: from a distribution over tokens at each frame to a token sequence. Token 0 is the blank.

Each row is searched up to its own length, alone, in float64: its neighbours cannot change its result.
"""

# B batch, F frames, V vocabulary, K prefixes kept
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attune.decoding.fusion import Fusion, LmRows
from attune.types import CtcScorer, Hypothesis

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROOT = 0  # the empty prefix


def greedy(scorer: CtcScorer) -> list[Hypothesis]:
    """The best token at each frame, repeats and blanks taken out; scored by that one alignment."""
    best, ids = scorer.log_probs.max(-1)  # (B, F)
    previous = torch.nn.functional.pad(ids[:, :-1], (1, 0))
    is_new = (ids != 0) & (ids != previous)
    rows = zip(best.cpu().double(), ids.cpu(), is_new.cpu(), scorer.lengths.tolist(), strict=True)
    return [_read_best(scores[:length], tokens[:length], new[:length]) for scores, tokens, new, length in rows]


def _read_best(scores: Tensor, tokens: Tensor, is_new: Tensor) -> Hypothesis:
    """The best tokens (F,) of a row's own frames; one lasts until another or a blank is better."""
    runs = is_new.cumsum(0)
    is_token = tokens != 0
    counts = torch.bincount(runs[is_token], minlength=int(is_new.sum()) + 1)[1:]
    sums = torch.zeros(len(counts) + 1, dtype=torch.double).index_add(0, runs[is_token], scores[is_token])[1:]
    starts = is_new.nonzero()[:, 0]
    return Hypothesis(
        tuple(tokens[is_new].tolist()),
        float(scores.sum()),
        tuple(starts.tolist()),
        tuple((sums / counts).exp().tolist()),
        ends=tuple((starts + counts).tolist()),
    )


def beam_search(scorer: CtcScorer, beam: int, fusion: Fusion | None = None) -> list[Hypothesis]:
    """The best token sequence among the best `beam` prefixes; scored by the sum of its alignments.

    With a `fusion`, every token that extends a prefix adds weight × log p_lm(token | prefix) to what prefixes are
    ranked by, and the best by that is reported with the sum of its alignments alone.
    """
    log_probs = scorer.log_probs.detach().cpu().numpy().astype(np.float64)
    rows = zip(log_probs, scorer.lengths.tolist(), strict=True)
    return [_search_row(row[:length], beam, fusion) for row, length in rows]


@dataclass(frozen=True, slots=True)
class _Beam:
    """The K best prefixes, best first, and the log-probability that each ends in a blank or in its last token."""

    nodes: Ints
    parents: Ints  # the node of each prefix without its last token
    last: Ints
    blank: Floats
    token: Floats
    lm: _PrefixLm | None


@dataclass(frozen=True, slots=True)
class _PrefixLm:
    """A language model's weighted log-probability of each prefix, and of each token after it."""

    fusion: Fusion
    rows: LmRows
    prefixes: Floats  # (K,)
    next: Floats  # (K, V)

    @staticmethod
    def start(fusion: Fusion, vocabulary: int) -> _PrefixLm:
        rows = fusion.start(1)
        return _PrefixLm(fusion, rows, np.zeros(1), _weighted(fusion, rows, vocabulary))

    def ranks(self) -> Floats:
        """What to add to the score of each prefix, and of each with one more token, (K + K × V,)."""
        return np.concatenate([self.prefixes, (self.prefixes[:, None] + self.next).ravel()])

    def extended(self, source: Ints, last: Ints, is_new: NDArray[np.bool_]) -> _PrefixLm:
        """The prefixes from these places, some with a new last token."""
        device = self.rows.log_probs.device
        rows, following = self.rows.select(torch.from_numpy(source).to(device)), self.next[source]
        prefixes = self.prefixes[source] + np.where(is_new, following[np.arange(len(last)), last], 0.0)
        if is_new.any():
            rows = self.fusion.advance(rows, torch.from_numpy(last).to(device), torch.from_numpy(is_new).to(device))
            following = _weighted(self.fusion, rows, following.shape[1])
        return _PrefixLm(self.fusion, rows, prefixes, following)


def _weighted(fusion: Fusion, rows: LmRows, vocabulary: int) -> Floats:
    log_probs: Floats = rows.padded(vocabulary).detach().cpu().numpy().astype(np.float64)
    return fusion.weight * log_probs


class _Prefixes:
    """All prefixes ever kept, as a tree: a prefix has one node, whichever way it was reached."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], int] = {}
        self.origin = [(ROOT, 0)]  # node → (parent, last token)

    def extend(self, parent: int, token: int) -> int:
        """The node of `parent` followed by `token`."""
        node = self.known.setdefault((parent, token), len(self.origin))
        if node == len(self.origin):
            self.origin.append((parent, token))
        return node

    def tokens(self, node: int) -> tuple[int, ...]:
        """The token sequence of a node."""
        reversed_tokens = []
        while node != ROOT:
            node, token = self.origin[node]
            reversed_tokens.append(token)
        return tuple(reversed(reversed_tokens))


def _search_row(log_probs: Floats, size: int, fusion: Fusion | None) -> Hypothesis:
    prefixes = _Prefixes()
    lm = _PrefixLm.start(fusion, log_probs.shape[1]) if fusion else None
    # The empty prefix has no last token: 0 is never extended with, and its parent is no node.
    beam = _Beam(np.array([ROOT]), np.array([-1]), np.array([0]), np.array([0.0]), np.array([-np.inf]), lm)
    for frame in log_probs:
        beam = _advance(beam, frame, size, prefixes)
    return Hypothesis(prefixes.tokens(int(beam.nodes[0])), float(np.logaddexp(beam.blank[0], beam.token[0])))


def _advance(beam: _Beam, frame: Floats, size: int, prefixes: _Prefixes) -> _Beam:
    """The best prefixes after one more frame: each kept as it is, or extended by each token."""
    total = np.logaddexp(beam.blank, beam.token)
    extended = total[:, None] + frame  # (K, V)
    here = np.arange(len(total))
    # The same token twice needs a blank in between; the blank itself extends nothing.
    extended[here, beam.last] = beam.blank + frame[beam.last]
    extended[:, 0] = -np.inf

    blank = total + frame[0]
    token = np.where(beam.last == 0, -np.inf, beam.token + frame[beam.last])
    # A kept prefix that is also another one's extension is one prefix: its alignments add up.
    child, parent = np.nonzero(beam.parents[:, None] == beam.nodes)
    token[child] = np.logaddexp(token[child], extended[parent, beam.last[child]])
    extended[parent, beam.last[child]] = -np.inf

    scores = np.concatenate([np.logaddexp(blank, token), extended.ravel()])
    ranks = scores + beam.lm.ranks() if beam.lm else scores
    return _select(beam, _best(ranks, size), blank, token, extended, prefixes)


def _select(beam: _Beam, chosen: Ints, blank: Floats, token: Floats, extended: Floats, prefixes: _Prefixes) -> _Beam:
    kept = len(beam.nodes)
    is_kept = chosen < kept
    row, column = np.divmod(chosen - kept, extended.shape[1])
    source = np.where(is_kept, chosen, row)
    nodes = beam.nodes[source]
    last = np.where(is_kept, beam.last[source], column)
    parents = np.where(is_kept, beam.parents[source], nodes)
    for index in np.flatnonzero(~is_kept):
        nodes[index] = prefixes.extend(int(parents[index]), int(last[index]))
    return _Beam(
        nodes,
        parents,
        last,
        np.where(is_kept, blank[source], -np.inf),
        np.where(is_kept, token[source], extended.ravel()[np.maximum(chosen - kept, 0)]),
        beam.lm.extended(source, last, ~is_kept) if beam.lm else None,
    )


def _best(scores: Floats, size: int) -> Ints:
    """The places of the best finite scores, best first; of equal ones the first."""
    places = np.sort(np.argpartition(-scores, min(size, len(scores)) - 1)[:size])
    places = places[np.argsort(-scores[places], kind="stable")]
    finite: Ints = places[scores[places] > -np.inf]
    return finite

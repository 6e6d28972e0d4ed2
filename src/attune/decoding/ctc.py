"""CTC: from a distribution over tokens at each frame to a token sequence. Token 0 is the blank.

Each row is searched up to its own length, alone, in float64: its neighbours cannot change its result.
"""

# B batch, F frames, V vocabulary, K prefixes kept
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

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
    return [
        Hypothesis(tuple(tokens[:length][new[:length]].tolist()), float(scores[:length].sum()))
        for scores, tokens, new, length in rows
    ]


def beam_search(scorer: CtcScorer, beam: int) -> list[Hypothesis]:
    """The most probable token sequence among the best `beam` prefixes; scored by the sum of its alignments."""
    log_probs = scorer.log_probs.detach().cpu().numpy().astype(np.float64)
    return [_search_row(row[:length], beam) for row, length in zip(log_probs, scorer.lengths.tolist(), strict=True)]


@dataclass(frozen=True, slots=True)
class _Beam:
    """The K best prefixes, best first, and the log-probability that each ends in a blank or in its last token."""

    nodes: Ints
    parents: Ints  # the node of each prefix without its last token
    last: Ints
    blank: Floats
    token: Floats


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


def _search_row(log_probs: Floats, size: int) -> Hypothesis:
    prefixes = _Prefixes()
    # The empty prefix has no last token: 0 is never extended with, and its parent is no node.
    beam = _Beam(np.array([ROOT]), np.array([-1]), np.array([0]), np.array([0.0]), np.array([-np.inf]))
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
    return _select(beam, _best(scores, size), blank, token, extended, prefixes)


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
    )


def _best(scores: Floats, size: int) -> Ints:
    """The places of the best finite scores, best first; of equal ones the first."""
    places = np.sort(np.argpartition(-scores, min(size, len(scores)) - 1)[:size])
    places = places[np.argsort(-scores[places], kind="stable")]
    finite: Ints = places[scores[places] > -np.inf]
    return finite

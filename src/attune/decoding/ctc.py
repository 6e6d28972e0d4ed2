"""CTC: from a distribution over tokens at each frame to a token sequence. Token 0 is the blank.

A beam takes all utterances through their frames at once, longest first, in float64. Rows of different utterances never
meet, and each ends at its own length: its neighbours cannot change its result.
"""

# B batch, F frames, V vocabulary, U utterances that are not over yet, K prefixes kept, C tokens to extend with
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attune.decoding.fusion import Fusion, LmRows
from attune.types import CtcScorer, Hypothesis

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HASH_FACTOR = np.int64(6_364_136_223_846_793_005)  # odd, and large enough to mix all 64 bits
GROUP = 16  # of tokens, to find the best
MOST_CANDIDATES = 1 << 22  # of one frame; utterances that have more together are searched one after the other


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


def beam_search(scorer: CtcScorer, beam: int, fusion: Fusion | None = None, nbest: int = 1) -> list[list[Hypothesis]]:
    """The best token sequences among the best `beam` prefixes, best first; scored by the sum of their alignments.

    With a `fusion`, every token that extends a prefix adds its gain to what prefixes are ranked by, and the best by
    that is reported with the sum of its alignments alone.
    """
    lengths = np.asarray(scorer.lengths.tolist(), np.int64)
    log_probs = scorer.log_probs.detach().cpu().float()
    order = np.argsort(-lengths, kind="stable")
    together = max(1, MOST_CANDIDATES // (beam * scorer.log_probs.shape[2]))
    found: list[list[Hypothesis]] = []
    for first in range(0, len(order), together):
        part = order[first : first + together]
        frames = _Frames.of(log_probs, part, lengths[part], None if fusion else beam)
        found += _Search(frames, beam, fusion.of(torch.from_numpy(part)) if fusion else None).run(nbest)
    return [found[place] for place in np.argsort(order).tolist()]


@dataclass(frozen=True, slots=True)
class _Frames:
    """The frames of some utterances, longest first, and the tokens that may extend a prefix at each."""

    log_probs: NDArray[np.float32]  # (B, F, V)
    order: Ints  # (U,) where each utterance is
    lengths: Ints  # (U,)
    tokens: Ints  # (U, F, C), in their order
    token_log_probs: NDArray[np.float32]  # (U, F, C)

    @staticmethod
    def of(log_probs: Tensor, order: Ints, lengths: Ints, beam: int | None) -> _Frames:
        """Without anything fused, a beam of K needs the best K + 1 tokens of each frame.

        They hold the best K of every prefix: all are ranked as the frame ranks them, but for the last token, which
        needs a blank in between.
        """
        frames, vocabulary = int(lengths.max(initial=0)), log_probs.shape[2]
        if beam is None or vocabulary - 1 <= beam + 1:
            chosen = log_probs[torch.from_numpy(order), :frames, 1:].numpy()
            tokens = np.broadcast_to(np.arange(1, vocabulary), chosen.shape)
            return _Frames(log_probs.numpy(), order, lengths, tokens, chosen)
        best = torch.zeros(len(order), frames, beam + 1, dtype=torch.int64)
        values = torch.zeros(best.shape)
        for place, (row, own) in enumerate(zip(order.tolist(), lengths.tolist(), strict=True)):  # while it is cached
            best[place, :own] = _best_tokens(log_probs[row, :own, 1:], beam + 1) + 1  # the blank extends nothing
            values[place, :own] = log_probs[row, :own].gather(1, best[place, :own])
        return _Frames(log_probs.numpy(), order, lengths, best.numpy(), values.numpy())

    def at(self, frame: int, utterances: int) -> _Frame:
        """The first utterances at a frame that they all have."""
        return _Frame(
            self.log_probs,
            self.order[:utterances],
            frame,
            self.tokens[:utterances, frame],
            self.token_log_probs[:utterances, frame].astype(np.float64),
        )


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame of each utterance: what may extend a prefix, and the log-probability of any token."""

    log_probs: NDArray[np.float32]  # (B, F, V)
    order: Ints  # (U,)
    number: int
    tokens: Ints  # (U, C)
    token_log_probs: Floats  # (U, C)

    def taken(self, tokens: Ints) -> Floats:
        """The log-probabilities of some tokens of each utterance."""
        taken: Floats = self.log_probs[self.order[:, None], self.number, tokens].astype(np.float64)
        return taken

    @property
    def blank(self) -> Floats:
        """The log-probability of the blank (U, 1)."""
        blank: Floats = self.log_probs[self.order, self.number, :1].astype(np.float64)
        return blank

    @property
    def whole(self) -> NDArray[np.float32]:
        """The log-probabilities of all tokens (U, V)."""
        whole: NDArray[np.float32] = self.log_probs[self.order, self.number]
        return whole


@dataclass(frozen=True, slots=True)
class _Beam:
    """The K best prefixes of each utterance, best first; one without any probability is none. (U, K) each."""

    hashes: Ints
    parents: Ints  # the hash of each prefix without its last token
    last: Ints
    blank: Floats  # the log-probability that it ends in a blank, and in its last token
    token: Floats
    lm: _PrefixLm | None

    def first(self, utterances: int) -> _Beam:
        """Those of the first utterances."""
        return _Beam(
            self.hashes[:utterances],
            self.parents[:utterances],
            self.last[:utterances],
            self.blank[:utterances],
            self.token[:utterances],
            self.lm.first(utterances) if self.lm else None,
        )

    @property
    def ranks(self) -> Floats:
        """What the prefixes are worth where they end."""
        total: Floats = np.logaddexp(self.blank, self.token)
        return total + self.lm.ended() if self.lm else total


@dataclass(frozen=True, slots=True)
class _PrefixLm:
    """What is fused: the gain of each prefix so far, and the rows that know what each token would add."""

    fusion: Fusion
    rows: LmRows
    prefixes: Floats  # (U, K)

    @staticmethod
    def start(fusion: Fusion, utterances: int, beam: int) -> _PrefixLm:
        if fusion.phrases:
            fusion = replace(fusion, phrases=replace(fusion.phrases, refuses_far=True))
        return _PrefixLm(fusion, fusion.start(utterances * beam), np.zeros((utterances, beam)))

    def first(self, utterances: int) -> _PrefixLm:
        rows = self.rows.select(torch.arange(utterances * self.prefixes.shape[1], device=self.rows.log_probs.device))
        return _PrefixLm(self.fusion, rows, self.prefixes[:utterances])

    def gains(self, frame: NDArray[np.float32]) -> Floats:
        """What each token (U, K, V) would add at a frame (U, V)."""
        count, beam = self.prefixes.shape
        frames = torch.from_numpy(frame).to(self.rows.log_probs.device).repeat_interleave(beam, 0)
        gains: Floats = self.fusion.gains(self.rows, frames).detach().cpu().numpy().astype(np.float64)
        return gains.reshape(count, beam, -1)

    def ended(self) -> Floats:
        finish: Floats = self.fusion.finish(self.rows).cpu().numpy().astype(np.float64)
        return self.prefixes + finish.reshape(self.prefixes.shape)

    def extended(
        self, source: Ints, last: Ints, is_new: NDArray[np.bool_], gains: Floats, frame: NDArray[np.float32]
    ) -> _PrefixLm:
        """The prefixes from these places, some with a new last token; (U, K) each."""
        device, (count, beam) = self.rows.log_probs.device, source.shape
        here = np.arange(count)[:, None]
        prefixes = self.prefixes[here, source] + np.where(is_new, gains[here, source, last], 0.0)
        flat = (here * beam + source).ravel()
        below = frame.max(1)[:, None] - np.take_along_axis(frame, last, 1)
        emitted, is_label, gaps = (torch.from_numpy(each.ravel()).to(device) for each in (last, is_new, below))
        rows = self.fusion.advance(self.rows.select(torch.from_numpy(flat).to(device)), emitted, is_label, gaps)
        return _PrefixLm(self.fusion, rows, prefixes)


class _Search:
    """The frames of all utterances, longest first, and what was emitted so far."""

    def __init__(self, frames: _Frames, beam: int, fusion: Fusion | None) -> None:
        self.frames, self.beam, self.fusion = frames, beam, fusion
        self.sources: list[Ints] = []  # of each frame (U, K): which prefix each continues
        self.tokens: list[Ints] = []  # and by which token; 0 is none

    def run(self, nbest: int) -> list[list[Hypothesis]]:
        """The best of each utterance."""
        beam, found = self._start(), list[list[Hypothesis]]()
        frames = self.frames
        for frame in range(int(frames.lengths.max(initial=0)) + 1):
            active = int((frames.lengths > frame).sum())
            found = [*self._ended(beam, active, nbest), *found]
            if not active:
                break
            beam = beam.first(active) if active < len(beam.last) else beam
            beam = self._advance(beam, frames.at(frame, active))
        return found

    def _start(self) -> _Beam:
        count = len(self.frames.lengths)
        lm = _PrefixLm.start(self.fusion, count, self.beam) if self.fusion else None
        none = np.zeros((count, self.beam), np.int64)
        blank = np.full((count, self.beam), -np.inf)
        blank[:, 0] = 0.0
        # The empty prefix has no last token: 0 is never extended with, and its parent is no prefix. Hashes differ
        # between utterances, as they are looked up among those of all.
        empty = _mixed(none, np.arange(count)[:, None])
        return _Beam(empty, none, none, blank, np.full_like(blank, -np.inf), lm)

    def _advance(self, beam: _Beam, frame: _Frame) -> _Beam:
        """The best prefixes after one more frame: each kept as it is, or extended by each token."""
        tokens = frame.tokens
        total = np.logaddexp(beam.blank, beam.token)
        extended = total[..., None] + frame.token_log_probs[:, None]  # (U, K, C)
        at_last = frame.taken(beam.last)  # (U, K)
        # The same token twice needs a blank in between.
        again = np.nonzero(tokens[:, None] == beam.last[..., None])
        extended[again] = (beam.blank + at_last)[again[:2]]

        blank = total + frame.blank
        token = np.where(beam.last == 0, -np.inf, beam.token + at_last)
        # A kept prefix that is also another one's extension is one prefix: its alignments add up.
        row, child, parent = _extensions(beam, total)
        is_same = beam.last[row, parent] == beam.last[row, child]
        before = np.where(is_same, beam.blank[row, parent], total[row, parent])
        token[row, child] = np.logaddexp(token[row, child], before + at_last[row, child])
        pair, place = np.nonzero(tokens[row] == beam.last[row, child][:, None])
        extended[row[pair], parent[pair], place] = -np.inf
        return self._select(beam, blank, token, extended, frame)

    def _select(self, beam: _Beam, blank: Floats, token: Floats, extended: Floats, frame: _Frame) -> _Beam:
        scores, tokens = np.logaddexp(blank, token), frame.tokens
        ranks = np.concatenate([scores, extended.reshape(len(extended), -1)], 1)
        gains = beam.lm.gains(frame.whole) if beam.lm else None
        if beam.lm and gains is not None:
            added = np.take_along_axis(gains, tokens[:, None], 2)
            extended = np.where(added == -np.inf, -np.inf, extended)  # none at all, which later ones could join
            following = added + beam.lm.prefixes[..., None]
            ranks = ranks + np.concatenate([beam.lm.prefixes, following.reshape(len(extended), -1)], 1)
        chosen = _best(ranks, self.beam)  # (U, K)
        here = np.arange(len(chosen))[:, None]
        is_kept = chosen < self.beam
        row, column = np.divmod(np.maximum(chosen - self.beam, 0), extended.shape[2])
        source = np.where(is_kept, chosen, row)
        last = np.where(is_kept, beam.last[here, source], tokens[here, column])
        self.sources.append(source)
        self.tokens.append(np.where(is_kept, 0, last))
        hashes = beam.hashes[here, source]
        return _Beam(
            np.where(is_kept, hashes, _mixed(hashes, last)),
            np.where(is_kept, beam.parents[here, source], hashes),
            last,
            np.where(is_kept, blank[here, source], -np.inf),
            np.where(is_kept, token[here, source], extended[here, row, column]),
            beam.lm.extended(source, last, ~is_kept, gains, frame.whole) if beam.lm and gains is not None else None,
        )

    def _ended(self, beam: _Beam, active: int, nbest: int) -> list[list[Hypothesis]]:
        """The best of the utterances that are over."""
        if active == len(beam.last):
            return []
        ranks, totals = beam.ranks, np.logaddexp(beam.blank, beam.token)
        found = []
        for row in range(active, len(ranks)):
            places = np.argsort(-ranks[row], kind="stable")[:nbest]
            own = [place for place in places.tolist() if ranks[row, place] > -np.inf]
            found.append([self._hypothesis(row, place, totals[row, place], ranks[row, place]) for place in own])
        return found

    def _hypothesis(self, row: int, place: int, total: np.float64, rank: np.float64) -> Hypothesis:
        score = float(total)
        parts = (("acoustic", score), ("fused", float(rank) - score)) if self.fusion else ()
        return Hypothesis(self._trace(row, place), score, parts=parts)

    def _trace(self, row: int, place: int) -> tuple[int, ...]:
        """The tokens of a prefix, from the last frame back."""
        reversed_tokens = []
        for sources, tokens in zip(reversed(self.sources), reversed(self.tokens), strict=True):
            if tokens[row, place]:
                reversed_tokens.append(int(tokens[row, place]))
            place = int(sources[row, place])
        return tuple(reversed(reversed_tokens))


def _best_tokens(log_probs: Tensor, count: int) -> Tensor:
    """The best tokens of each frame (N, count), in their order.

    They are in the groups with the best maxima: of a large vocabulary, most tokens are never compared. A group has
    tokens that are far apart, so that all maxima are taken side by side.
    """
    vocabulary = log_probs.shape[1]
    size = vocabulary // GROUP  # groups
    if size < 2 * count:
        return log_probs.topk(count, sorted=False).indices.sort().values
    maxima = torch.unflatten(log_probs[:, : size * GROUP], 1, (GROUP, size)).amax(1)
    best = maxima.topk(count, sorted=False).indices  # (N, count)
    rest = torch.arange(size * GROUP, vocabulary).expand(len(best), -1)  # too few for another token of each group
    members = (best[..., None] + size * torch.arange(GROUP)).flatten(1)
    tokens = torch.cat([members, rest], 1)
    places = log_probs.gather(1, tokens).topk(count, sorted=False).indices
    return tokens.gather(1, places).sort().values


def _extensions(beam: _Beam, total: Floats) -> tuple[Ints, Ints, Ints]:
    """The prefixes that are another one with one more token: the utterance, which prefix, and of which."""
    alive = np.flatnonzero(total > -np.inf)
    hashes = beam.hashes.ravel()[alive]
    order = np.argsort(hashes)
    parents = beam.parents.ravel()[alive]
    places = np.minimum(np.searchsorted(hashes, parents, sorter=order), len(order) - 1)
    found = order[places]
    is_there = hashes[found] == parents
    row, child = np.divmod(alive[is_there], total.shape[1])
    return row, child, alive[found[is_there]] % total.shape[1]


def _mixed(hashes: Ints, tokens: Ints) -> Ints:
    """The hash of a prefix with one more token; different ones agree once in 2 ** 60 or so."""
    with np.errstate(over="ignore"):
        mixed: Ints = (hashes + tokens + 1) * HASH_FACTOR
    return mixed ^ (mixed >> 29)


def _best(scores: Floats, size: int) -> Ints:
    """The places of the best scores of each row, best first; of equal ones the first."""
    places = np.sort(np.argpartition(-scores, size - 1, axis=1)[:, :size], axis=1)
    order = np.argsort(-np.take_along_axis(scores, places, 1), axis=1, kind="stable")
    return np.take_along_axis(places, order, 1)

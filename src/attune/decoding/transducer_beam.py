"""Transducers by a beam: alignment-length synchronous decoding (ALSD), batched over utterances and hypotheses.

In every step each hypothesis takes one more token, a label or a blank; the best `beam` stay active, and hypotheses with
the same labels at the same frame are merged into one with the sum of their probabilities. A hypothesis past its last
frame keeps its place and its score. Rows of an utterance only compete with each other, and one that has ended stays as
it is, so the batch does not change a result. For RNN-T the hypotheses are those of NeMo's `malsd_batch`, for TDT the
best one nearly always is (docs/guides/transducers.md says when not).

Saon et al., Alignment-Length Synchronous Decoding for RNN Transducer, ICASSP 2020; Xu et al., Efficient Sequence
Transduction by Jointly Predicting Tokens and Durations, 2304.06795.
"""

# U utterances, K hypotheses of each, R = U × K rows, V tokens, D durations, N steps
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attune.decoding import transducer
from attune.decoding.fusion import Fusion, LmRows
from attune.decoding.transducer import MAX_LABELS, advance_prediction, hypothesis
from attune.types import Hypothesis, States, TransducerScorer

NEVER = -torch.inf
LEAST_LABEL = 1e-2  # of the probability that a label comes, where a language model weighs it; as in NeMo
SHARE_TO_KEEP = 0.8  # of the utterances; while more go on, those that have ended are cheaper to keep
HASH_FACTOR = 6_364_136_223_846_793_005  # odd, and large enough to mix all 64 bits


@dataclass(frozen=True, slots=True)
class Beam:
    """How many hypotheses to keep, how to rank them, and a language model.

    Hypotheses are ranked by score / (labels + 1) ** `length_power`; with a `fusion`, by the fused score.
    """

    size: int
    length_power: float = 1.0
    max_labels: int = MAX_LABELS  # in one frame
    fusion: Fusion | None = None


def beam_search(scorer: TransducerScorer, beam: Beam) -> list[list[Hypothesis]]:
    """The hypotheses of each utterance, best first, no two alike.

    Each is scored by the transducer's log-probability, the sum of the alignments kept; the language model has no part
    in that.
    """
    search = _Search(scorer, beam)
    rows, steps = search.start(), []
    ended = _Ended.none(len(scorer.lengths), beam.size, scorer.device)
    steps_at_once = transducer.steps_between_syncs(scorer.device)
    while len(active := search.active(rows)):
        if search.is_worth_pruning(active):
            ended.keep(search, rows)
            rows = search.prune(rows, active)
        for _ in range(steps_at_once):
            rows, step = search.step(rows)
            steps.append(step)
    ended.keep(search, rows)
    labels = _trace(steps, ended.ranks.shape, scorer.blank)
    utterances = zip(labels, ended.scores.tolist(), ended.ranks.tolist(), strict=True)
    return [_ranked(*each, beam) for each in utterances]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The hypotheses; a rank of -inf means none."""

    ranks: Tensor  # (U, K), as are the next five: the score, with a language model the fused one
    scores: Tensor  # the transducer's own log-probability: without a language model the same tensor
    frames: Tensor  # as many as there are, once it has ended
    repeats: Tensor  # labels emitted in this frame
    counts: Tensor  # labels emitted
    hashes: Tensor  # of the labels emitted
    predicted: Tensor  # (R, P)
    states: States
    lm: LmRows | None

    def select(self, utterances: Tensor) -> _Rows:
        """The hypotheses of some utterances."""
        size = self.ranks.shape[1]
        rows = (utterances[:, None] * size + torch.arange(size, device=utterances.device)).flatten()
        ranks, frames, repeats, counts, hashes = (
            each[utterances] for each in (self.ranks, self.frames, self.repeats, self.counts, self.hashes)
        )
        scores = self.scores[utterances] if self.lm else ranks
        states = tuple(each[rows] for each in self.states)
        lm = self.lm.select(rows) if self.lm else None
        return _Rows(ranks, scores, frames, repeats, counts, hashes, self.predicted[rows], states, lm)


@dataclass(frozen=True, slots=True)
class _Ended:
    """What the hypotheses of all utterances are worth where the audio ends (U, K)."""

    ranks: Tensor
    scores: Tensor

    @staticmethod
    def none(utterances: int, size: int, device: torch.device) -> _Ended:
        return _Ended(*(torch.full((utterances, size), NEVER, device=device) for _ in range(2)))

    def keep(self, search: _Search, rows: _Rows) -> None:
        """Those of the rows that are left, with what the end adds; some may still go on and are kept again."""
        ranks, fusion = rows.ranks, search.beam.fusion
        if fusion and rows.lm:
            ranks = ranks + fusion.finish(rows.lm).view_as(ranks)
        self.ranks[search.places], self.scores[search.places] = ranks, rows.scores


@dataclass(frozen=True, slots=True)
class _Step:
    """What each hypothesis came from and which token it took, (U, K) each; a blank stands for nothing, too."""

    parents: Tensor
    tokens: Tensor
    frames: Tensor
    log_probs: Tensor


@dataclass(frozen=True, slots=True)
class _Choice:
    """The best continuations (U, K): whose, by which token, and how many frames that takes."""

    ranks: Tensor
    parents: Tensor
    tokens: Tensor  # blank where a hypothesis stays as it is
    advances: Tensor
    is_stay: Tensor
    places: Tensor  # token × durations + duration


class _Search:
    def __init__(self, scorer: TransducerScorer, beam: Beam) -> None:
        self.scorer, self.beam = scorer, beam
        self.own = torch.arange(beam.size, device=scorer.device)
        self._search_in(torch.arange(len(scorer.lengths), device=scorer.device))
        self.durations = torch.tensor(scorer.durations or (0,), device=scorer.device)

    def _search_in(self, places: Tensor) -> None:
        """Go on with the utterances at these places."""
        self.places = places
        self.ends = self.scorer.lengths[places, None]
        self.utterances = places.repeat_interleave(self.beam.size)
        self.firsts = self.beam.size * torch.arange(len(places), device=places.device)[:, None]

    def start(self) -> _Rows:
        count, size = len(self.scorer.lengths), self.beam.size
        predicted, states = self.scorer.start(count * size)
        none = torch.zeros(count, size, dtype=torch.long, device=self.scorer.device)
        ranks = torch.full((count, size), NEVER, device=self.scorer.device)
        ranks[:, 0] = 0
        lm = self.beam.fusion.start(count * size) if self.beam.fusion else None
        return _Rows(ranks, ranks, none, none, none, none, predicted, states, lm)

    def active(self, rows: _Rows) -> Tensor:
        """Those of the utterances that have hypotheses with frames left; the device is waited for."""
        return self._is_active(rows).any(1).nonzero()[:, 0]

    def is_worth_pruning(self, active: Tensor) -> bool:
        """Whether so many have ended that going on without them takes less time."""
        return self.scorer.device.type == "cpu" and len(active) <= SHARE_TO_KEEP * len(self.places)

    def prune(self, rows: _Rows, active: Tensor) -> _Rows:
        """Go on with these of the utterances alone."""
        self._search_in(self.places[active])
        return rows.select(active)

    def step(self, rows: _Rows) -> tuple[_Rows, _Step]:
        """Let each utterance's hypotheses take one more token."""
        frames = rows.frames.minimum(self.ends - 1).clamp(min=0).flatten()
        tokens, durations = self.scorer.join(self.utterances, frames, rows.predicted)
        choice = self._choose(rows, self._fused(tokens, rows.lm), durations)
        origins = (self.firsts + choice.parents).flatten()  # (R,) the row that each continues
        log_probs = tokens[origins].gather(1, choice.tokens.view(-1, 1)).view_as(choice.ranks)
        step = self._step(choice, rows.frames.gather(1, choice.parents), log_probs)
        scores = self._scores(rows, choice, log_probs, durations[origins]) if self.beam.fusion else choice.ranks
        gaps = tokens.amax(1)[origins] - log_probs.flatten() if self.beam.fusion else origins
        return self._merged(self._continued(rows, choice, scores, origins, gaps)), step

    def _step(self, choice: _Choice, frames: Tensor, log_probs: Tensor) -> _Step:
        """What was taken, by all utterances: those that have been let go stay as they are."""
        count = len(self.scorer.lengths)
        if len(self.places) == count:
            return _Step(choice.parents, choice.tokens, frames, log_probs)
        tokens = torch.full((count, len(self.own)), self.scorer.blank, device=frames.device)
        whole = _Step(self.own.repeat(count, 1), tokens, torch.zeros_like(tokens), torch.zeros_like(tokens).float())
        for all_of, own in ((whole.parents, choice.parents), (whole.tokens, choice.tokens)):
            all_of[self.places] = own
        whole.frames[self.places], whole.log_probs[self.places] = frames, log_probs
        return whole

    def _is_active(self, rows: _Rows) -> Tensor:
        return (rows.frames < self.ends) & (rows.ranks > NEVER)

    def _fused(self, log_probs: Tensor, lm: LmRows | None) -> Tensor:
        """The tokens' log-probabilities with the language model's, weighted.

        That model knows labels only. The probability that there is one is the transducer's, and so counts in both:
        otherwise every label would have a cost that a blank does not.
        """
        fusion = self.beam.fusion
        if fusion is None or lm is None:
            return log_probs
        weight, blanks = fusion.weight, log_probs[:, self.scorer.blank, None]
        is_label = (-blanks.exp().clamp(max=1 - LEAST_LABEL)).log1p()
        fused = log_probs + weight * is_label + fusion.gains(lm, log_probs)
        fused[:, self.scorer.blank, None] = (1 + weight) * blanks
        return fused

    def _scores(self, rows: _Rows, choice: _Choice, log_probs: Tensor, durations: Tensor) -> Tensor:
        """The transducer's own log-probability of the chosen continuations."""
        gains = log_probs
        if self.scorer.durations:
            gains = gains + durations.gather(1, (choice.places % len(self.durations)).view(-1, 1)).view_as(gains)
        scores = rows.scores.gather(1, choice.parents) + gains.masked_fill(choice.is_stay, 0)
        return scores.masked_fill(choice.ranks == NEVER, NEVER)

    def _choose(self, rows: _Rows, tokens: Tensor, durations: Tensor) -> _Choice:
        """The best of all continuations of an utterance's hypotheses; those that have ended have one, to stay."""
        blank, size = self.scorer.blank, self.beam.size
        takes = tokens.view(-1, size, tokens.shape[1], 1)  # (U, K, V, D)
        if self.scorer.durations:
            takes = takes + durations.view(-1, size, 1, durations.shape[1])
            takes[:, :, blank].masked_fill_(self.durations == 0, NEVER)  # it would change nothing
        is_full = (rows.repeats >= self.beam.max_labels)[..., None, None]
        is_blank = (torch.arange(tokens.shape[1], device=tokens.device) == blank)[:, None]
        takes = takes.masked_fill((is_full & ~is_blank) | ~self._is_active(rows)[..., None, None], NEVER).flatten(2)
        stays = torch.zeros_like(rows.ranks).masked_fill(rows.frames < self.ends, NEVER)
        ranks = rows.ranks[..., None] + torch.cat([takes, stays[..., None]], 2)
        best, places = ranks.flatten(1).topk(size)
        parents, places = places // ranks.shape[2], places % ranks.shape[2]
        is_stay = places == takes.shape[2]
        tokens = (places // len(self.durations)).masked_fill(is_stay, blank)
        advances = self.durations[places % len(self.durations)] if self.scorer.durations else (tokens == blank).long()
        return _Choice(best, parents, tokens, advances.masked_fill(is_stay, 0), is_stay, places)

    def _continued(self, rows: _Rows, choice: _Choice, scores: Tensor, origins: Tensor, gaps: Tensor) -> _Rows:
        is_label = choice.tokens != self.scorer.blank
        frames, repeats, counts, hashes = (
            each.gather(1, choice.parents) for each in (rows.frames, rows.repeats, rows.counts, rows.hashes)
        )
        tokens, states = choice.tokens.flatten(), tuple(each[origins] for each in rows.states)
        predicted, states = advance_prediction(self.scorer, tokens, rows.predicted[origins], states)
        return _Rows(
            choice.ranks,
            scores,
            (frames + choice.advances).minimum(self.ends),
            (repeats + is_label).masked_fill(choice.advances > 0, 0),
            counts + is_label,
            torch.where(is_label, _mixed(hashes, choice.tokens), hashes),
            predicted,
            states,
            self._advance_lm(rows.lm, tokens, origins, gaps),
        )

    def _advance_lm(self, lm: LmRows | None, tokens: Tensor, origins: Tensor, gaps: Tensor) -> LmRows | None:
        if self.beam.fusion is None or lm is None:
            return None
        return self.beam.fusion.advance(lm.select(origins), tokens, tokens != self.scorer.blank, gaps)

    def _merged(self, rows: _Rows) -> _Rows:
        """Give the best of equal hypotheses all their probability, and the others none."""
        keys = torch.stack([rows.hashes, rows.counts, rows.frames], 2)  # (U, K, 3)
        is_equal = (keys[:, :, None] == keys[:, None]).all(3)
        is_first = ~is_equal.tril(-1).any(2)  # they come best first
        if rows.lm is None or self.beam.fusion is None:
            ranks = _summed(rows.ranks, is_equal, is_first)
            return replace(rows, ranks=ranks, scores=ranks)
        # Phrases add to a text and not to each of its alignments: the best one says how much.
        gains = self.beam.fusion.phrase_gains(rows.lm).view_as(rows.ranks)
        ranks = _summed(rows.ranks - gains, is_equal, is_first) + gains
        return replace(rows, ranks=ranks, scores=_summed(rows.scores, is_equal, is_first))


def _summed(values: Tensor, is_equal: Tensor, is_first: Tensor) -> Tensor:
    """The first of equal hypotheses with the probability of all of them (U, K), log; the others with none."""
    total = values[:, None].masked_fill(~is_equal, NEVER).logsumexp(2)
    return total.masked_fill(~is_first, NEVER)


def _mixed(hashes: Tensor, tokens: Tensor) -> Tensor:
    """The hash of the labels with one more; different ones agree once in 2 ** 60 or so."""
    mixed = (hashes + tokens + 1) * HASH_FACTOR
    return mixed ^ (mixed >> 29)


def _trace(steps: Sequence[_Step], shape: Sequence[int], blank: int) -> list[list[list[tuple[int, int, float]]]]:
    """The labels of each utterance's hypotheses with frames and probabilities, traced back from the last step."""
    utterances, size = shape
    if not steps:
        return [[[] for _ in range(size)] for _ in range(utterances)]
    parents = torch.stack([step.parents for step in steps]).cpu()  # (N, U, K)
    rows = torch.empty_like(parents)
    rows[-1] = torch.arange(size)
    for index in range(len(steps) - 1, 0, -1):
        rows[index - 1] = parents[index].gather(1, rows[index])
    columns = zip(*((step.tokens, step.frames, step.log_probs.exp()) for step in steps), strict=True)
    taken = [torch.stack(each).cpu().gather(2, rows) for each in columns]
    return [
        [_labels([each[:, utterance, place] for each in taken], blank) for place in range(size)]
        for utterance in range(utterances)
    ]


def _labels(taken: Sequence[Tensor], blank: int) -> list[tuple[int, int, float]]:
    """What was taken in each step, without the blanks."""
    tokens, frames, confidences = (each[taken[0] != blank].tolist() for each in taken)
    return list(zip(tokens, frames, confidences, strict=True))


def _ranked(
    labels: Sequence[Sequence[tuple[int, int, float]]],
    scores: Sequence[float],
    ranks: Sequence[float],
    beam: Beam,
) -> list[Hypothesis]:
    """An utterance's hypotheses, best first; of equally good ones, the order of their tokens decides."""
    every = zip(labels, scores, ranks, strict=True)
    found = [(rank, hypothesis(own, score)) for own, score, rank in every if rank > NEVER]
    found.sort(key=lambda each: (-each[0] / (len(each[1].tokens) + 1) ** beam.length_power, each[1].tokens))
    if beam.fusion is None:
        return [each for _, each in found]
    return [replace(each, parts=(("acoustic", each.score), ("fused", rank - each.score))) for rank, each in found]

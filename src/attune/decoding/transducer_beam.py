"""Transducers by a beam: alignment-length synchronous decoding (ALSD), batched over utterances and hypotheses.

In every step each hypothesis takes one more token, a label or a blank; the best `beam` go on, and what then are the
same labels at the same frame becomes one hypothesis with the sum of their probabilities. A hypothesis that has come to
its last frame keeps its place and its score. Rows of an utterance only ever meet each other, and one that has ended
stays as it is: the batch does not show. With beam 4 and no language model the best hypotheses are those of NeMo's
`malsd_batch`, which this was compared with. (Saon et al., Alignment-Length Synchronous Decoding for RNN Transducer,
ICASSP 2020; Xu et al., Efficient Sequence Transduction by Jointly Predicting Tokens and Durations, 2304.06795.)
"""

# U utterances, K hypotheses of each, R = U × K rows, V tokens, D durations, N steps
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.decoding import transducer
from attune.decoding.transducer import MAX_LABELS, hypothesis, move_on
from attune.types import Hypothesis, LanguageModel, States, TransducerScorer

NEVER = -torch.inf
NEARLY_ONE = -1e-6  # the log-probability of a blank at most, where the rest is shared among labels
HASH_FACTOR = 6_364_136_223_846_793_005  # odd, and large enough to mix all 64 bits


@dataclass(frozen=True, slots=True)
class Beam:
    """How wide to look, how to rank what was found, and a language model with the weight it has.

    Hypotheses are ranked by score / (labels + 1) ** `length_power`.
    """

    size: int
    length_power: float = 1.0
    max_labels: int = MAX_LABELS  # in one frame
    language_model: LanguageModel | None = None
    weight: float = 0.0


def beam_search(scorer: TransducerScorer, beam: Beam) -> list[list[Hypothesis]]:
    """What was found for each utterance, best first, no two alike; scored by the sum of the alignments kept."""
    search = _Search(scorer, beam)
    rows, steps = search.start(), []
    steps_at_once = transducer.steps_between_looks(scorer.device)
    while search.goes_on(rows):
        for _ in range(steps_at_once):
            rows, step = search.step(rows)
            steps.append(step)
    labels = _trace(steps, rows.scores.shape, scorer.blank)
    return [
        _ranked([hypothesis(*each) for each in zip(labels, scores, strict=True) if each[1] > NEVER], beam.length_power)
        for labels, scores in zip(labels, rows.scores.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The hypotheses; a score of -inf means none."""

    scores: Tensor  # (U, K), as are the next four
    frames: Tensor  # as many as there are, once it has ended
    repeats: Tensor  # labels said in this frame
    counts: Tensor  # labels said
    hashes: Tensor  # of the labels said
    predicted: Tensor  # (R, P)
    states: States
    opinions: Tensor  # (R, V) what the language model says of the next label
    lm_states: States


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

    scores: Tensor
    parents: Tensor
    tokens: Tensor  # blank where a hypothesis stays as it is
    advances: Tensor


class _Search:
    def __init__(self, scorer: TransducerScorer, beam: Beam) -> None:
        self.scorer, self.beam = scorer, beam
        self.ends = scorer.lengths[:, None]
        count = len(scorer.lengths)
        self.utterances = torch.arange(count, device=scorer.device).repeat_interleave(beam.size)
        self.firsts = torch.arange(0, count * beam.size, beam.size, device=scorer.device)[:, None]
        self.durations = torch.tensor(scorer.durations or (0,), device=scorer.device)

    def start(self) -> _Rows:
        count, size = len(self.scorer.lengths), self.beam.size
        predicted, states = self.scorer.start(count * size)
        none = torch.zeros(count, size, dtype=torch.long, device=self.scorer.device)
        scores = torch.full((count, size), NEVER, device=self.scorer.device)
        scores[:, 0] = 0
        opinions: Tensor = scores.new_zeros(count * size, 0)
        lm_states: States = ()
        if self.beam.language_model:
            opinions, lm_states = self.beam.language_model.start(count * size)
        return _Rows(scores, none, none, none, none, predicted, states, opinions, lm_states)

    def goes_on(self, rows: _Rows) -> bool:
        """Whether any hypothesis has frames left; a look at the device."""
        return bool(self._is_going(rows).any())

    def step(self, rows: _Rows) -> tuple[_Rows, _Step]:
        """Let each utterance's hypotheses take one more token."""
        frames = rows.frames.minimum(self.ends - 1).clamp(min=0).flatten()
        tokens, durations = self.scorer.join(self.utterances, frames, rows.predicted)
        choice = self._choose(rows, self._fused(tokens, rows.opinions), durations)
        origins = (self.firsts + choice.parents).flatten()  # (R,) the row that each goes on from
        log_probs = tokens[origins].gather(1, choice.tokens.view(-1, 1)).view_as(choice.scores)
        step = _Step(choice.parents, choice.tokens, rows.frames.gather(1, choice.parents), log_probs)
        return self._merged(self._continued(rows, choice, origins)), step

    def _is_going(self, rows: _Rows) -> Tensor:
        return (rows.frames < self.ends) & (rows.scores > NEVER)

    def _fused(self, log_probs: Tensor, opinions: Tensor) -> Tensor:
        """The tokens' log-probabilities with the language model's, weighted.

        That model knows labels only. Whether there is one is the transducer's to say, and so counts the same in both:
        otherwise every label would cost something that a blank does not.
        """
        if not self.beam.language_model:
            return log_probs
        blanks = log_probs[:, self.scorer.blank, None]
        is_label = (-blanks.clamp(max=NEARLY_ONE).exp()).log1p()
        opinions = F.pad(opinions, (0, log_probs.shape[1] - opinions.shape[1]))
        fused = log_probs + self.beam.weight * (is_label + opinions)
        fused[:, self.scorer.blank, None] = (1 + self.beam.weight) * blanks
        return fused

    def _choose(self, rows: _Rows, tokens: Tensor, durations: Tensor) -> _Choice:
        """The best of all continuations of an utterance's hypotheses; those that have ended have one, to stay."""
        blank, size = self.scorer.blank, self.beam.size
        takes = tokens.view(-1, size, tokens.shape[1], 1)  # (U, K, V, D)
        if self.scorer.durations:
            takes = takes + durations.view(-1, size, 1, durations.shape[1])
            takes[:, :, blank].masked_fill_(self.durations == 0, NEVER)  # it would change nothing
        is_full = (rows.repeats >= self.beam.max_labels)[..., None, None]
        is_blank = (torch.arange(tokens.shape[1], device=tokens.device) == blank)[:, None]
        takes = takes.masked_fill((is_full & ~is_blank) | ~self._is_going(rows)[..., None, None], NEVER).flatten(2)
        stays = torch.zeros_like(rows.scores).masked_fill(rows.frames < self.ends, NEVER)
        scores = rows.scores[..., None] + torch.cat([takes, stays[..., None]], 2)
        best, places = scores.flatten(1).topk(size)
        parents, places = places // scores.shape[2], places % scores.shape[2]
        is_stay = places == takes.shape[2]
        tokens = (places // len(self.durations)).masked_fill(is_stay, blank)
        advances = self.durations[places % len(self.durations)] if self.scorer.durations else (tokens == blank).long()
        return _Choice(best, parents, tokens, advances.masked_fill(is_stay, 0))

    def _continued(self, rows: _Rows, choice: _Choice, origins: Tensor) -> _Rows:
        is_label = choice.tokens != self.scorer.blank
        frames, repeats, counts, hashes = (
            each.gather(1, choice.parents) for each in (rows.frames, rows.repeats, rows.counts, rows.hashes)
        )
        tokens, states = choice.tokens.flatten(), tuple(each[origins] for each in rows.states)
        predicted, states = move_on(self.scorer.predict, tokens, self.scorer.blank, rows.predicted[origins], states)
        opinions, lm_states = self._opinions(rows, tokens, origins)
        return _Rows(
            choice.scores,
            (frames + choice.advances).minimum(self.ends),
            (repeats + is_label).masked_fill(choice.advances > 0, 0),
            counts + is_label,
            torch.where(is_label, _mixed(hashes, choice.tokens), hashes),
            predicted,
            states,
            opinions,
            lm_states,
        )

    def _opinions(self, rows: _Rows, tokens: Tensor, origins: Tensor) -> tuple[Tensor, States]:
        model = self.beam.language_model
        if not model:
            return rows.opinions, ()
        states = tuple(each[origins] for each in rows.lm_states)
        return move_on(model.score, tokens, self.scorer.blank, rows.opinions[origins], states)

    def _merged(self, rows: _Rows) -> _Rows:
        """Give the best of equal hypotheses all their probability, and the others none."""
        keys = torch.stack([rows.hashes, rows.counts, rows.frames], 2)  # (U, K, 3)
        is_equal = (keys[:, :, None] == keys[:, None]).all(3)
        total = rows.scores[:, None].masked_fill(~is_equal, NEVER).logsumexp(2)
        is_first = ~is_equal.tril(-1).any(2)  # they come best first
        return replace(rows, scores=total.masked_fill(~is_first, NEVER))


def _mixed(hashes: Tensor, tokens: Tensor) -> Tensor:
    """The hash of the labels with one more; different ones agree once in 2 ** 60 or so."""
    mixed = (hashes + tokens + 1) * HASH_FACTOR
    return mixed ^ (mixed >> 29)


def _trace(steps: Sequence[_Step], shape: Sequence[int], blank: int) -> list[list[list[tuple[int, int, float]]]]:
    """The labels of each utterance's hypotheses with frames and probabilities, followed back from the last step."""
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


def _ranked(found: list[Hypothesis], length_power: float) -> list[Hypothesis]:
    """Best first; of equally good ones, the order of their tokens decides."""
    return sorted(found, key=lambda each: (-each.score / (len(each.tokens) + 1) ** length_power, each.tokens))

"""Forced alignment by CTC: the most probable path of given tokens through the frames, for a whole batch at once.

The states of a row are its tokens with a blank before, between and after them. One step per frame advances all states
of all rows; which way each was reached is kept as a byte, so that memory is frames × states. Nothing is read back from
the device before the end.
"""

# B batch, F frames, V vocabulary, U tokens, S = 2 U + 1 states
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.types import CtcScorer, Hypothesis

BLANK = 0
STAY, NEXT, SKIP = range(3)  # how a state was reached: from itself, from the one before, or past a blank
FOREIGN_COST = 3.0  # nats a frame for speech between words that the text does not have


@dataclass(frozen=True, slots=True)
class ForcedTokens:
    """What a row must contain: its tokens, and before which of them speech may be that the text does not have.

    With `may_stop`, the tokens may end early: those after the best place to stop are left out of the result.
    """

    tokens: tuple[int, ...]
    word_starts: frozenset[int] = frozenset()
    may_stop: bool = False


def align(scorer: CtcScorer, rows: Sequence[ForcedTokens]) -> list[Hypothesis | None]:
    """The tokens of each row with the frames from and up to which each lasts; None where the audio is too short.

    A token's confidence is the geometric mean of its probabilities over its frames.
    """
    states = _states(rows, scorer.log_probs)
    log_probs = _with_foreign(scorer.log_probs)
    ends, ways = _forward(log_probs, scorer.lengths, states)
    scores, last = _last_states(ends, states, rows)  # (B,)
    path = _backtrack(ways, scorer.lengths, last)  # (B, F)
    emitted = log_probs.gather(2, states.tokens.gather(1, path)[..., None])[..., 0]  # (B, F)
    found = zip(path.cpu(), emitted.cpu(), scorer.lengths.tolist(), scores.tolist(), rows, strict=True)
    return [
        _hypothesis(own[:length], gains[:length], score, row)
        if score > float("-inf") and (length or not row.tokens)
        else None
        for own, gains, length, score, row in found
    ]


@dataclass(frozen=True, slots=True)
class _States:
    tokens: Tensor  # (B, S) what each state emits; the vocabulary's size: a blank that takes foreign speech too
    may_skip: Tensor  # (B, S) reached from two states before: past a blank between two different tokens
    counts: Tensor  # (B,)


def _states(rows: Sequence[ForcedTokens], log_probs: Tensor) -> _States:
    longest = 2 * max(1, *(len(row.tokens) for row in rows)) + 1
    foreign = log_probs.shape[2]
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    for number, row in enumerate(rows):
        tokens[number, 1 : 2 * len(row.tokens) : 2] = torch.tensor(row.tokens, dtype=torch.long)
        if row.word_starts:
            tokens[number, [2 * place for place in (*row.word_starts, len(row.tokens))]] = foreign
    is_token = torch.arange(longest) % 2 == 1
    earlier = F.pad(tokens[:, :-2], (2, 0), value=-1)
    may_skip = is_token & (earlier != tokens) & (torch.arange(longest) > 1)
    counts = torch.tensor([2 * len(row.tokens) + 1 for row in rows])
    device = log_probs.device
    return _States(tokens.to(device), may_skip.to(device), counts.to(device))


def _with_foreign(log_probs: Tensor) -> Tensor:
    """One more column: a blank, or whatever token is best at a cost."""
    best = torch.maximum(log_probs[..., BLANK], log_probs.amax(2) - FOREIGN_COST)
    return torch.cat([log_probs, best[..., None]], dim=2)


def _forward(log_probs: Tensor, lengths: Tensor, states: _States) -> tuple[Tensor, Tensor]:
    """The best score that ends in each state (B, S), and how it was reached at each frame (F, B, S)."""
    never = float("-inf")
    numbers = torch.arange(states.tokens.shape[1], device=log_probs.device)
    free = torch.zeros(states.tokens.shape, dtype=torch.double, device=log_probs.device)
    blocked = free.masked_fill(~states.may_skip, never)  # (B, S)
    outside = free.masked_fill(numbers >= states.counts[:, None], never)
    total = outside.masked_fill(numbers > 1, never) + log_probs[:, 0].gather(1, states.tokens)
    ways = torch.zeros(log_probs.shape[1], *total.shape, dtype=torch.int8, device=log_probs.device)
    for frame in range(1, log_probs.shape[1]):
        before = F.pad(total[:, :-1], (1, 0), value=never)
        skipped = F.pad(total[:, :-2], (2, 0), value=never) + blocked
        best, ways_here = torch.stack([total, before, skipped]).max(0)
        advanced = best + log_probs[:, frame].gather(1, states.tokens) + outside
        total = torch.where(frame < lengths[:, None], advanced, total)
        ways[frame] = ways_here
    return total, ways


def _last_states(ends: Tensor, states: _States, rows: Sequence[ForcedTokens]) -> tuple[Tensor, Tensor]:
    """The score of each row's path and where it ends: at its last token, or wherever is best if it may stop."""
    may_stop = torch.tensor([row.may_stop for row in rows], device=ends.device)[:, None]
    numbers = torch.arange(ends.shape[1], device=ends.device)
    is_last = numbers >= states.counts[:, None] - 2
    scores, last = ends.masked_fill(~(is_last | may_stop), float("-inf")).max(1)
    return scores, last


def _backtrack(ways: Tensor, lengths: Tensor, last: Tensor) -> Tensor:
    """The state at each frame (B, F)."""
    state, path = last, []
    for frame in range(ways.shape[0] - 1, -1, -1):
        path.append(state)
        step = ways[frame].gather(1, state[:, None])[:, 0]
        state = torch.where(frame < lengths, state - step, state)
    return torch.stack(path[::-1], 1).clamp(min=0)


def _hypothesis(path: Tensor, gains: Tensor, score: float, row: ForcedTokens) -> Hypothesis:
    """The tokens that a path of states goes through."""
    is_token = path % 2 == 1
    places = path[is_token] // 2
    frames = is_token.nonzero()[:, 0]
    count = int(places.max()) + 1 if len(places) else 0
    starts = torch.full((count,), len(path)).scatter_reduce(0, places, frames, "amin")
    ends = torch.zeros(count, dtype=torch.long).scatter_reduce(0, places, frames + 1, "amax")
    sums = torch.zeros(count, dtype=torch.double).index_add(0, places, gains[is_token].double())
    confidences = (sums / torch.bincount(places, minlength=count).clamp(min=1)).exp()
    return Hypothesis(
        row.tokens[:count], score, tuple(starts.tolist()), tuple(confidences.tolist()), ends=tuple(ends.tolist())
    )

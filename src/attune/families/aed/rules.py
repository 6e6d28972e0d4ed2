"""Rules of a search over an attention decoder that shows where it looks: SpeechBrain's, each of the utterance alone.

A row that jumps too far falls behind all others, an end is allowed only where nothing else is much more probable, and
frames that were attended to again and again cost something.
"""

# R rows, F frames, V vocabulary
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from attune.families.aed.settings import AedConfig
from attune.types import CtcScorer, CtcTokenScorer, LogitFilter

NEVER = -torch.inf
JUMP_COST = 1e5  # log-probability: more than any row is behind another, and where all of them jump the best goes on


class AttentionScorer(CtcTokenScorer, Protocol):
    """A CtcTokenScorer that shows where it looks."""

    @property
    def attention(self) -> Tensor:
        """The weights of the last step (R, F), zero beyond the own frames."""


@dataclass(frozen=True, slots=True)
class AttentionRules:
    """What a search asks of the attention. Absent: nothing."""

    temperature: float = 1.0
    end_threshold: float | None = None  # an end needs a log-probability above this × the best one
    max_shift: int | None = None  # frames between the peaks of two steps
    coverage: float = 0.0  # weight of the penalty for frames that were attended to again and again
    coverage_threshold: float = 0.5  # of a frame's attention over all steps, above which it counts
    min_ratio: float = 0.0  # tokens for each frame of an utterance before it may end
    max_ratio: float = 1.0  # and after which it ends


def rules_of(config: AedConfig) -> AttentionRules:
    """What a recipe asks of the attention."""
    return AttentionRules(
        config.temperature,
        config.end_threshold,
        config.max_attention_shift,
        config.coverage,
        config.coverage_threshold,
        config.min_decode_ratio,
        config.max_decode_ratio,
    )


class RuledScorer:
    """A TokenScorer under these rules."""

    def __init__(self, scorer: AttentionScorer, rules: AttentionRules) -> None:
        self.scorer, self.rules = scorer, rules
        self.device, self.end = scorer.device, scorer.end
        self.ctc: CtcScorer = scorer.ctc
        self.covered: Tensor | None = None  # (R, F) attention so far
        self.peaks: Tensor | None = None  # (R,)
        self.least = torch.tensor(_shares(scorer.limits, rules.min_ratio), device=scorer.device)  # (R,) tokens
        self.is_weak = torch.zeros(0, dtype=torch.bool)  # (R,) whether something is much more probable than the end
        self.steps = 0
        self.parts: dict[str, Tensor] = {}

    @property
    def prefixes(self) -> Sequence[Sequence[int]]:
        """Those of the scorer."""
        return self.scorer.prefixes

    @property
    def limits(self) -> Sequence[int]:
        """Those of the scorer, which are the utterances' frames, times the ratio; one token may always come."""
        return [max(1, limit) for limit in _shares(self.scorer.limits, self.rules.max_ratio)]

    @property
    def filters(self) -> Sequence[LogitFilter]:
        """Those of the scorer, and no weak and no early end; at its limit a row ends all the same."""
        weak = [] if self.rules.end_threshold is None else [self._no_weak_end]
        early = [self._no_early_end] if self.rules.min_ratio else []
        return [*self.scorer.filters, *weak, *early]

    def advance(self, tokens: Tensor) -> Tensor:
        """The scorer's log-probabilities (R, V) under the rules."""
        log_probs = self.scorer.advance(tokens)
        if self.rules.temperature != 1:
            log_probs = (log_probs / self.rules.temperature).log_softmax(-1)
        self.steps += 1
        if self.rules.end_threshold is not None:
            self.is_weak = log_probs[:, self.end] < self.rules.end_threshold * log_probs.amax(1)
        log_probs = self._behind_by_jumps(log_probs)
        self.parts = {"attention": log_probs}
        if not self.rules.coverage:
            return log_probs
        self.parts["coverage"] = -self.rules.coverage * self._penalty()[:, None]
        return log_probs + self.parts["coverage"]

    def select(self, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` is now."""
        self.scorer.select(rows)
        if self.peaks is not None and len(rows) != len(self.peaks):  # else they are those of a step that is over
            self.parts = {name: part[rows] for name, part in self.parts.items()}
        self.least = self.least[rows]
        self.is_weak = self.is_weak[rows] if len(self.is_weak) else self.is_weak
        self.covered = None if self.covered is None else self.covered[rows]
        self.peaks = None if self.peaks is None else self.peaks[rows]

    def _no_weak_end(self, log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        return self._without_end(log_probs, self.is_weak)

    def _no_early_end(self, log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        return self._without_end(log_probs, tokens.shape[1] - begins < self.least)

    def _without_end(self, log_probs: Tensor, rows: Tensor) -> Tensor:
        is_end = torch.arange(log_probs.shape[1], device=log_probs.device) == self.end
        return log_probs.masked_fill(rows[:, None] & is_end, NEVER)

    def _behind_by_jumps(self, log_probs: Tensor) -> Tensor:
        """A row whose attention jumped too far is far behind; one that goes back by the whole shift has, too."""
        before, self.peaks = self.peaks, self.scorer.attention.argmax(1)
        before = torch.zeros_like(self.peaks) if before is None else before
        if self.rules.max_shift is None:
            return log_probs
        shifts = self.peaks - before
        is_far = (shifts > self.rules.max_shift) | (shifts <= -self.rules.max_shift)
        return log_probs - JUMP_COST * is_far[:, None]

    def _penalty(self) -> Tensor:
        attention = self.scorer.attention
        self.covered = attention if self.covered is None else self.covered + attention
        beyond: Tensor = (self.covered - self.rules.coverage_threshold).clamp(min=0).sum(1)
        return beyond / self.steps


def _shares(limits: Sequence[int], ratio: float) -> list[int]:
    return [int(limit * ratio) for limit in limits]

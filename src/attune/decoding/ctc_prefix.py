"""CTC prefix scores in a token-by-token search: how probable CTC finds it that a text begins with a hypothesis.

After "Joint CTC-Attention based End-to-End Speech Recognition using Multi-task Learning" (arXiv 1609.06773). A row
remembers, for every number of frames, the probability that exactly its tokens were emitted so far, the last frame being
a label or a blank. Both are linear recurrences over the frames and thus cumulative sums, and the scores of all next
tokens are a matrix product: nothing loops over frames. All of it is in float64, so that the batch does not show.
"""

# U utterances, K rows of each, R = U × K rows, F frames, V vocabulary
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.scorers import CombinedScorer, CtcScorer, CtcTokenScorer, LogitFilter

BLANK = 0
LEAST = -1e4  # log-probability: anything less would only make the cumulative sums coarse
NEVER = -torch.inf


@dataclass(frozen=True, slots=True)
class _Frames:
    """What CTC says about the utterances that are still searched."""

    log_probs: Tensor  # (U, F, V)
    probs: Tensor  # (U, F, V), zero beyond the own frames
    blanks: Tensor  # (U, F + 1): the log-probability of nothing but blanks
    lengths: Tensor  # (U,)

    def select(self, utterances: Tensor) -> _Frames:
        return _Frames(
            self.log_probs[utterances], self.probs[utterances], self.blanks[utterances], self.lengths[utterances]
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The hypotheses: whose they are, what they end with, and how probable they are by CTC."""

    utterances: Tensor  # (R,)
    last: Tensor  # (R,), -1 before the first token
    prefix: Tensor  # (R,): that a text begins with the hypothesis
    labels: Tensor  # (R, F + 1): that it is just the hypothesis after so many frames, the last one a label
    blanks: Tensor  # (R, F + 1): the same, the last one a blank

    def select(self, rows: Tensor) -> _Rows:
        return _Rows(
            self.utterances[rows], self.last[rows], self.prefix[rows], self.labels[rows], self.blanks[rows]
        )  # fmt: skip

    def where(self, is_new: Tensor, old: _Rows) -> _Rows:
        """These rows where `is_new` (R,), and the old ones elsewhere."""
        wide = is_new[:, None]
        return _Rows(
            self.utterances,
            torch.where(is_new, self.last, old.last),
            torch.where(is_new, self.prefix, old.prefix),
            torch.where(wide, self.labels, old.labels),
            torch.where(wide, self.blanks, old.blanks),
        )


class CtcPrefixes:
    """The log-probabilities of each row's next token by CTC; the search advances and reorders the rows."""

    def __init__(self, ctc: CtcScorer, end: int) -> None:
        log_probs = ctc.log_probs.double().clamp(min=LEAST)
        lengths = ctc.lengths.to(log_probs.device)
        is_own = torch.arange(log_probs.shape[1], device=log_probs.device) < lengths[:, None]
        blanks = F.pad(log_probs[..., BLANK].cumsum(1), (1, 0))
        self.end = end
        self.frames = _Frames(log_probs, log_probs.exp().masked_fill(~is_own[..., None], 0), blanks, lengths)
        utterances = torch.arange(len(lengths), device=lengths.device)
        nothing = torch.full_like(blanks, NEVER)
        self.rows = _Rows(utterances, torch.full_like(utterances, -1), blanks.new_zeros(len(blanks)), nothing, blanks)

    def log_probs(self) -> Tensor:
        """Those of each next token (R, V); the end's is that of the whole text."""
        rows, frames = self.rows, self.frames
        reached = torch.logaddexp(rows.labels, rows.blanks)  # (R, F + 1)
        scores = self._sums(reached[:, :-1])
        # The last token again needs a blank in between.
        again = self._sum_of(rows.blanks[:, :-1], rows.last.clamp(min=0))
        is_last = torch.arange(scores.shape[1], device=scores.device) == rows.last[:, None]
        scores = torch.where(is_last, again[:, None], scores)
        scores[:, BLANK] = NEVER  # no label, unless it ends texts
        scores[:, self.end] = reached.gather(1, frames.lengths[rows.utterances][:, None])[:, 0]
        # What is impossible stays so, also where nothing else is possible.
        return (scores - rows.prefix[:, None]).nan_to_num(nan=NEVER, neginf=NEVER).float()

    def advance(self, tokens: Tensor, is_emitted: Tensor) -> None:
        """Give each row its next token (R,) where it emits one (R,)."""
        rows, frames = self.rows, self.frames
        is_again = (rows.last == tokens)[:, None]
        before = torch.where(is_again, rows.blanks, torch.logaddexp(rows.labels, rows.blanks))[:, :-1]
        growth = F.pad(self._of(tokens).cumsum(1), (1, 0))
        labels = _recurrence(before, growth)
        blanks = _recurrence(labels[:, :-1], frames.blanks[rows.utterances])
        prefix = self._sum_of(before, tokens)
        self.rows = _Rows(rows.utterances, tokens, prefix, labels, blanks).where(is_emitted, rows)

    def select(self, rows: Tensor) -> None:
        """Row i continues from what row `rows[i]` is now."""
        has_others = len(rows) != len(self.rows.utterances)
        self.rows = self.rows.select(rows)
        if has_others:  # utterances that have ended are let go
            kept, own = torch.unique(self.rows.utterances, return_inverse=True)
            self.frames, self.rows = self.frames.select(kept), replace(self.rows, utterances=own)

    def _sums(self, before: Tensor) -> Tensor:
        """The log of Σ before(t) × p(t + 1) for every token (R, V)."""
        most = before.amax(1, keepdim=True)
        shifted = (before - most).exp().view(len(self.frames.probs), -1, before.shape[1])  # (U, K, F)
        return (shifted @ self.frames.probs).flatten(0, 1).log() + most

    def _sum_of(self, before: Tensor, tokens: Tensor) -> Tensor:
        """The same for one token of each row (R,)."""
        own = torch.arange(before.shape[1], device=before.device) < self.frames.lengths[self.rows.utterances][:, None]
        return (before + self._of(tokens)).masked_fill(~own, NEVER).logsumexp(1)

    def _of(self, tokens: Tensor) -> Tensor:
        """The log-probabilities of one token of each row, by frame (R, F)."""
        return self.frames.log_probs[self.rows.utterances, :, tokens]


def _recurrence(added: Tensor, growth: Tensor) -> Tensor:
    """x(0) = 0, x(t) = (x(t - 1) + added(t - 1)) × g(t), in logs (R, F + 1); `growth` is the log of g(1) × … × g(t)."""
    sums = torch.logcumsumexp(added - growth[:, :-1], dim=1)
    return F.pad(sums + growth[:, 1:], (1, 0), value=NEVER)


class JointScorer:
    """A TokenScorer whose log-probabilities are (1 - weight) × attention + weight × CTC."""

    def __init__(self, scorer: CtcTokenScorer, weight: float) -> None:
        self.scorer, self.weight = scorer, weight
        self.device, self.end = scorer.device, scorer.end
        self.prefixes, self.limits = scorer.prefixes, scorer.limits
        self.filters: Sequence[LogitFilter] = scorer.filters
        self.ctc = CtcPrefixes(scorer.ctc, scorer.end)
        self.begins = torch.tensor([len(prefix) for prefix in scorer.prefixes], device=scorer.device)  # (R,)
        self.position = 0
        self.parts: Mapping[str, Tensor] = {}

    def advance(self, tokens: Tensor) -> Tensor:
        """Feed each row its next tokens (R, n): the joint log-probabilities (R, V) of what follows them."""
        by_attention = self.scorer.advance(tokens)
        for token in tokens.unbind(1):
            self.ctc.advance(token, self.begins <= self.position)
            self.position += 1
        parts = self.scorer.parts if isinstance(self.scorer, CombinedScorer) else {"attention": by_attention}
        by_ctc = self.weight * self.ctc.log_probs()
        self.parts = {
            **{name: (1 - self.weight) * part for name, part in parts.items()},
            "ctc": by_ctc,
        }
        joint = (1 - self.weight) * by_attention + by_ctc
        return joint.masked_fill(by_attention == NEVER, NEVER)  # whatever CTC thinks of what is ruled out

    def select(self, rows: Tensor) -> None:
        """Row i continues from what row `rows[i]` is now."""
        if len(rows) != len(self.begins):  # else they are those of a step that is over
            self.parts = {name: part[rows] for name, part in self.parts.items()}
        self.scorer.select(rows)
        self.ctc.select(rows)
        self.begins = self.begins[rows]

"""Shallow fusion: a language model in a beam search, with a weight. One interface for CTC, token and transducer beams.

A hypothesis is ranked by its log-probability plus weight × log p_lm of its tokens. What it reports as its score is the
log-probability by the searched model alone, in every beam: scores stay comparable with those of a search without a
language model. The language model starts with the result: it does not see a prompt. Where a hypothesis ends with a
token of its own (attention models), the language model's end of sentence counts too. A token beyond the language
model's vocabulary, such as a timestamp, costs nothing there and leaves its state as it is.
"""

# R rows, V tokens
from __future__ import annotations

from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor

from attune.decoding._recurrent import advance_where
from attune.types import LanguageModel, States


@dataclass(frozen=True, slots=True)
class LmRows:
    """What a language model predicts next for each row of a beam, and its states."""

    log_probs: Tensor  # (R, V)
    states: States

    def select(self, rows: Tensor) -> LmRows:
        """The rows that continue from these (R,)."""
        return LmRows(self.log_probs[rows], tuple(each[rows] for each in self.states))

    def padded(self, vocabulary: int) -> Tensor:
        """The log-probabilities of all tokens of the searched model (R, V)."""
        missing = vocabulary - self.log_probs.shape[1]
        return F.pad(self.log_probs, (0, missing)) if missing else self.log_probs


@dataclass(frozen=True, slots=True)
class Fusion:
    """A language model and how much it counts."""

    model: LanguageModel = field(repr=False, compare=False)
    weight: float

    def start(self, rows: int) -> LmRows:
        """Rows before any token."""
        return LmRows(*self.model.start(rows))

    def advance(self, rows: LmRows, tokens: Tensor, is_emitted: Tensor) -> LmRows:
        """The rows after one more token each (R,), where one is emitted (R,)."""
        is_label = is_emitted & (tokens < rows.log_probs.shape[1])
        labels = tokens.masked_fill(~is_label, 0)
        return LmRows(*advance_where(self.model.score, labels, is_label, rows.log_probs, rows.states))

"""Shallow fusion: a language model, phrases or both in a beam search. One interface for CTC, token, transducer beams.

A hypothesis is ranked by its log-probability plus weight × log p_lm of its tokens plus the bonuses of its phrases. What
it reports as its score is the log-probability by the searched model alone, in every beam: scores stay comparable with
those of a search without a language model. The language model starts with the result: it does not see a prompt. Where a
hypothesis ends with a token of its own (attention models), the language model's end of sentence counts too. A token
beyond the language model's vocabulary, such as a timestamp, costs nothing there and leaves its state as it is.
"""

# R rows, V tokens
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.decoding._recurrent import advance_where
from attune.decoding.phrases import PhraseBooster, PhraseRows
from attune.scorers import EndedModel
from attune.types import LanguageModel, States


@dataclass(frozen=True, slots=True)
class LmRows:
    """What is fused for each row of a beam: what a language model predicts next, its states, and phrases."""

    log_probs: Tensor  # (R, V)
    states: States
    phrases: PhraseRows | None = None

    def select(self, rows: Tensor) -> LmRows:
        """The rows that continue from these (R,)."""
        phrases = self.phrases.select(rows) if self.phrases else None
        return LmRows(self.log_probs[rows], tuple(each[rows] for each in self.states), phrases)

    def padded(self, vocabulary: int) -> Tensor:
        """The language model's log-probabilities of all tokens of the searched model (R, V)."""
        missing = vocabulary - self.log_probs.shape[1]
        return F.pad(self.log_probs, (0, missing)) if missing else self.log_probs


@dataclass(frozen=True, slots=True)
class Fusion:
    """A language model and how much it counts, and the phrases of a batch; either may be absent.

    At a `temperature` above 1 the language model's distributions are flatter.
    """

    model: LanguageModel | None = field(repr=False, compare=False)
    weight: float = 0.0
    temperature: float = 1.0
    phrases: PhraseBooster | None = field(default=None, repr=False, compare=False)

    def of(self, utterances: Tensor) -> Fusion:
        """For some utterances of the batch, in this order."""
        return replace(self, phrases=self.phrases.of(utterances)) if self.phrases else self

    def start(self, rows: int) -> LmRows:
        """Rows before any token, as many for each utterance."""
        phrases = self.phrases.start(rows) if self.phrases else None
        if self.model is None:
            device = phrases.nodes.device if phrases else None
            return LmRows(torch.zeros(rows, 0, device=device), (), phrases)
        log_probs, states = self.model.start(rows)
        return LmRows(self._tempered(log_probs), states, phrases)

    def advance(self, rows: LmRows, tokens: Tensor, is_emitted: Tensor, gaps: Tensor) -> LmRows:
        """The rows after one more token each (R,), where one is emitted (R,).

        By `gaps` (R,), the searched model found them less probable than the best token.
        """
        phrases = rows.phrases
        if self.phrases and phrases:
            phrases = self.phrases.advance(phrases, tokens, is_emitted, gaps)
        if self.model is None:
            return replace(rows, phrases=phrases)
        is_label = is_emitted & (tokens < rows.log_probs.shape[1])
        labels = tokens.masked_fill(~is_label, 0)
        return LmRows(*advance_where(self._score, labels, is_label, rows.log_probs, rows.states), phrases)

    def gains(self, rows: LmRows, log_probs: Tensor) -> Tensor:
        """What each token would add to the rank of each row, for which the searched model has these (R, V)."""
        gains = self.weight * rows.padded(log_probs.shape[1])
        return gains + self.phrases.bonuses(rows.phrases, log_probs) if self.phrases and rows.phrases else gains

    def phrase_gains(self, rows: LmRows) -> Tensor:
        """What phrases have added to each row so far (R,)."""
        if self.phrases and rows.phrases:
            return self.phrases.total(rows.phrases)
        return torch.zeros(len(rows.log_probs), device=rows.log_probs.device)

    def finish(self, rows: LmRows) -> Tensor:
        """What the end of the audio adds to each row (R,), of models that have no token for it."""
        gains = torch.zeros(len(rows.log_probs), device=rows.log_probs.device)
        if isinstance(self.model, EndedModel):
            gains = gains + self.weight * self.model.finish(rows.states)
        return gains + self.phrases.finish(rows.phrases) if self.phrases and rows.phrases else gains

    def parts(self, hypotheses: Sequence[Sequence[int]], end: int | None) -> list[dict[str, float]]:
        """What the language model adds to the rank of each hypothesis of one utterance, and the phrases at most.

        `end` is the token that ends them, if there is one.
        """
        nowhere_far = replace(self.phrases, reach=torch.inf) if self.phrases else None
        lm, phrases = replace(self, phrases=None), Fusion(None, phrases=nowhere_far)
        alone = {"lm": lm} if self.model else {}
        alone |= {"phrases": phrases} if self.phrases else {}
        totals = {name: each._totals(hypotheses, end) for name, each in alone.items()}
        return [{name: own[index] for name, own in totals.items()} for index in range(len(hypotheses))]

    def _totals(self, hypotheses: Sequence[Sequence[int]], end: int | None) -> list[float]:
        """The gain of each hypothesis, all of its tokens and its end."""
        ended = [[*tokens, *([] if end is None else [end])] for tokens in hypotheses]
        rows = self.start(len(ended))
        totals = torch.zeros(len(ended), device=rows.log_probs.device)
        size = 1 + max((token for tokens in ended for token in tokens), default=0)
        for place in range(max(map(len, ended))):
            is_own = torch.tensor([place < len(tokens) for tokens in ended], device=totals.device)
            here = [tokens[place] if place < len(tokens) else 0 for tokens in ended]
            labels = torch.tensor(here, device=totals.device)
            alike = totals.new_zeros(len(ended), max(size, rows.log_probs.shape[1]))
            gains = self.gains(rows, alike).gather(1, labels[:, None])[:, 0]
            totals = totals + gains.masked_fill(~is_own, 0)
            rows = self.advance(rows, labels, is_own, torch.full_like(totals, torch.inf))
        found: list[float] = (totals if end is not None else totals + self.finish(rows)).tolist()
        return found

    def _score(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        if self.model is None:
            raise RuntimeError("There is no language model.")
        log_probs, states = self.model.score(labels, states)
        return self._tempered(log_probs), states

    def _tempered(self, log_probs: Tensor) -> Tensor:
        return log_probs if self.temperature == 1 else (log_probs / self.temperature).log_softmax(-1)

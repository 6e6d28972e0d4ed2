"""Find the best hypothesis for each utterance of a batch. The result does not depend on who shares the batch."""

import math
from dataclasses import dataclass
from typing import Literal

from attune.decoding import ctc, labels, tokens
from attune.errors import ModelError
from attune.types import FrameScorer, Hypothesis, LabelScorer, Scorer, TokenScorer

DIVERGED = "The model's scores are NaN: its weights are damaged or its training diverged. Use others."


@dataclass(frozen=True, slots=True)
class Search:
    """How hard to look: the best at every step, or the best `beam` hypotheses kept.

    Token by token, a beam's hypotheses are compared by score / length ** `length_power`, and with `fallback` a doubtful
    result is decoded anew (`decoding/fallback.py`).
    """

    kind: Literal["greedy", "beam"] = "greedy"
    beam: int = 8
    length_power: float = 1.0
    fallback: bool = False


def search(scorer: Scorer, settings: Search) -> list[Hypothesis]:
    """The hypothesis found for each row of the scorer."""
    if not isinstance(scorer, FrameScorer | LabelScorer):
        return _search_tokens(scorer, settings)
    if scorer.log_probs.isnan().any():
        raise ModelError(DIVERGED)
    if isinstance(scorer, LabelScorer):
        return labels.best(scorer)
    return ctc.greedy(scorer) if settings.kind == "greedy" else ctc.beam_search(scorer, settings.beam)


def _search_tokens(scorer: TokenScorer, settings: Search) -> list[Hypothesis]:
    if settings.kind == "greedy":
        found = tokens.greedy(scorer)
    else:
        ranked = tokens.beam_search(scorer, settings.beam, settings.length_power)
        found = [best for hypotheses in ranked for best in hypotheses[:1]]  # among NaN there is no best
    if len(found) < len(scorer.prefixes) or any(math.isnan(hypothesis.score) for hypothesis in found):
        raise ModelError(DIVERGED)
    return found

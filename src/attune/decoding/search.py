"""Find the best hypothesis for each utterance of a batch. The result does not depend on who shares the batch."""

from dataclasses import dataclass
from typing import Literal

from attune.decoding import ctc, labels
from attune.errors import ModelError
from attune.types import FrameScorer, Hypothesis, Scorer


@dataclass(frozen=True, slots=True)
class Search:
    """How hard to look: the best at every step, or the best `beam` hypotheses kept."""

    kind: Literal["greedy", "beam"] = "greedy"
    beam: int = 8


def search(scorer: Scorer, settings: Search) -> list[Hypothesis]:
    """The hypothesis found for each row of the scorer."""
    if scorer.log_probs.isnan().any():
        raise ModelError("The model's scores are NaN: its weights are damaged or its training diverged. Use others.")
    if not isinstance(scorer, FrameScorer):
        return labels.best(scorer)
    if settings.kind == "greedy":
        return ctc.greedy(scorer)
    return ctc.beam_search(scorer, settings.beam)

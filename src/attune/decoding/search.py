"""Find the best hypothesis for each utterance of a batch. The result does not depend on who shares the batch."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from attune.decoding import ctc, labels, tokens, transducer
from attune.decoding.transducer_beam import Beam, beam_search
from attune.errors import ModelError
from attune.types import (
    CtcScorer,
    Hypothesis,
    LabelScorer,
    LanguageModel,
    Precision,
    Scorer,
    TokenScorer,
    TransducerScorer,
)

DIVERGED = "The model's scores are NaN: its weights are damaged or its training diverged. Use others."


@dataclass(frozen=True, slots=True)
class Search:
    """How hard to look: the best at every step, or the best `beam` hypotheses kept.

    A beam's hypotheses are compared by score / length ** `length_power`. With `fallback`, a doubtful result found token
    by token is decoded anew (`decoding/fallback.py`). A transducer's beam may listen to a language model, read from the
    file `lm`. A narrower precision is quicker on a GPU, and may now and then find another hypothesis. A beam that is
    asked for `alternatives` keeps so many of its hypotheses, the best among them.
    """

    kind: Literal["greedy", "beam"] = "greedy"
    beam: int = 8
    length_power: float = 1.0
    fallback: bool = False
    precision: Precision = "fp32"
    lm: str | None = None
    lm_weight: float = 0.0
    language_model: LanguageModel | None = field(default=None, repr=False, compare=False)
    alternatives: int = 0

    def as_json(self) -> dict[str, Any]:
        """The settings as plain data."""
        settings: dict[str, Any] = {
            "kind": self.kind,
            "beam": self.beam,
            "length_power": self.length_power,
            "fallback": self.fallback,
            "precision": self.precision,
        }
        return {**settings, "lm": self.lm, "lm_weight": self.lm_weight} if self.lm else settings


def search(scorer: Scorer, settings: Search) -> list[Hypothesis]:
    """The hypothesis found for each row of the scorer."""
    if isinstance(scorer, TransducerScorer):
        return _sound(_search_transducer(scorer, settings), len(scorer.lengths))
    if not isinstance(scorer, CtcScorer | LabelScorer):
        stepped = cast(TokenScorer, scorer)
        return _sound(_search_tokens(stepped, settings), len(stepped.prefixes))
    if settings.alternatives:
        raise ModelError("This model's search keeps no alternatives: transducers' and token by token ones do.")
    if scorer.log_probs.isnan().any():
        raise ModelError(DIVERGED)
    if isinstance(scorer, LabelScorer):
        return labels.best(scorer)
    return ctc.greedy(scorer) if settings.kind == "greedy" else ctc.beam_search(scorer, settings.beam)


def _search_tokens(scorer: TokenScorer, settings: Search) -> list[Hypothesis]:
    if settings.kind == "greedy":
        return tokens.greedy(scorer)
    wanted = max(1, settings.alternatives)
    return _firsts(tokens.beam_search(scorer, settings.beam, settings.length_power, wanted), wanted)


def _search_transducer(scorer: TransducerScorer, settings: Search) -> list[Hypothesis]:
    if settings.kind == "greedy":
        return transducer.greedy(scorer, graphed=scorer.device.type == "cuda")
    beam = Beam(settings.beam, settings.length_power, language_model=settings.language_model, weight=settings.lm_weight)
    return _firsts(beam_search(scorer, beam), max(1, settings.alternatives))


def _firsts(ranked: list[list[Hypothesis]], wanted: int) -> list[Hypothesis]:
    """The best of each utterance, with the next best up to `wanted`; among NaN there is no best."""
    return [replace(found[0], nbest=tuple(found[1:wanted])) for found in ranked if found]


def _sound(found: list[Hypothesis], expected: int) -> list[Hypothesis]:
    if len(found) < expected or any(math.isnan(hypothesis.score) for hypothesis in found):
        raise ModelError(DIVERGED)
    return found

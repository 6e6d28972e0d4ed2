"""The entry of decoding: from a batch, or the scorer a model makes of it, to one output for each utterance.

Every kind of scorer has its search, chosen here and nowhere else. An output does not depend on who shares the batch.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attune.contracts import TaskModel
from attune.decoding import ctc, ctc_alignment, fallback, labels, outputs, tokens, transducer, transducer_beam
from attune.decoding.ctc_prefix import JointScorer
from attune.decoding.fusion import Fusion
from attune.decoding.settings import FORMER, LENGTH_POWERS, USES, SearchName
from attune.errors import ModelError
from attune.scorers import ScorerKind, kind_of
from attune.types import (
    Activity,
    ActivityScorer,
    Batch,
    CtcScorer,
    CtcTokenScorer,
    Embedding,
    EmbeddingScorer,
    Features,
    FeatureScorer,
    Hypothesis,
    LabelScorer,
    Likelihood,
    LikelihoodScorer,
    Output,
    Precision,
    Scorer,
    TokenScorer,
    TransducerScorer,
    Waveform,
    WaveformScorer,
    require_hypothesis,
)

DIVERGED = "The model's scores are NaN: its weights are damaged or its training diverged. Use another checkpoint."
NAMES: dict[ScorerKind, str] = {
    "ctc": "a CTC model",
    "label": "a classifier",
    "tokens": "an attention model",
    "transducer": "a transducer",
    "embedding": "an embedding model",
    "features": "a model without a decoder",
    "activity": "a frame activity model",
    "waveform": "a waveform model",
    "likelihood": "a language model",
}


@dataclass(frozen=True, slots=True)
class Search:
    """How to search: the best token at every step, or the best `beam` hypotheses kept.

    A beam's hypotheses are ranked by score / length ** `length_power` (None: that of `LENGTH_POWERS`), and by a
    language model with `fusion`; `lm` is the file it was read from. `ctc_weight` is the part of CTC in joint decoding.
    With `fallback`, results that fail OpenAI's thresholds are decoded again by sampling (`decoding/fallback.py`). Half
    precision is faster on a GPU, and may now and then find another hypothesis. `nbest` asks a beam for that many
    hypotheses, the best included.
    """

    kind: SearchName = "greedy"
    beam: int = 8
    length_power: float | None = None
    fallback: bool = False
    precision: Precision = "fp32"
    nbest: int = 0
    ctc_weight: float = 0.0
    lm: str | None = None
    fusion: Fusion | None = field(default=None, repr=False)

    def as_json(self) -> dict[str, object]:
        """The settings as plain data."""
        settings: dict[str, object] = {
            "kind": self.kind,
            "beam": self.beam,
            "length_power": self.length_power,
            "fallback": self.fallback,
            "precision": self.precision,
        }
        if self.ctc_weight:
            settings["ctc_weight"] = self.ctc_weight
        return {**settings, "lm": self.lm, "lm_weight": self.fusion.weight} if self.fusion else settings

    def changed(self) -> dict[str, object]:
        """What is not as usual among the settings that some searches do not use."""
        names = ("beam", "length_power", "fallback", "nbest", "ctc_weight")
        values = {name: getattr(self, name) for name in names}
        found: dict[str, object] = {
            name: value for name, value in values.items() if value not in (getattr(USUAL, name), FORMER.get(name))
        }
        return {**found, "lm": self.lm} if self.fusion else found


USUAL = Search()


def decode_batch(task_model: TaskModel, batch: Batch, settings: Search) -> list[Output]:
    """The output for each utterance of a batch."""
    scorer = task_model.model.scorer(batch)
    # Before the search, which lets go of the rows that have ended.
    languages = task_model.detect_languages(scorer) if task_model.detect_languages else None
    found = search(scorer, settings)
    if settings.fallback:
        found = list(fallback.redecode(task_model, batch, [require_hypothesis(each) for each in found]))
    if languages is None:
        return found
    return [replace(require_hypothesis(each), language=one) for each, one in zip(found, languages, strict=True)]


def search(scorer: Scorer, settings: Search) -> list[Output]:
    """The output for each row of a scorer, by the search of its kind."""
    require_usable(settings, kind_of(scorer))
    found = _search(scorer, settings)
    if any(_is_nan(each) for each in found):
        raise ModelError(DIVERGED)
    return found


def require_usable(settings: Search, kind: ScorerKind) -> None:
    """Refuse settings that the search of a model of this kind would ignore."""
    if problems := list(_unusable(settings, kind)):
        raise ModelError(" ".join(problems))


def _unusable(settings: Search, kind: ScorerKind) -> Iterator[str]:
    if settings.kind == "beam" and ("beam", kind) not in USES:
        yield f"decode.search=beam does not work with {NAMES[kind]}. Use greedy."
    for name, value in settings.changed().items():
        if name not in USES.get((settings.kind, kind), ()):
            has_use = name in USES.get(("beam", kind), ())
            advice = "Set decode.search=beam, or leave it out" if has_use else "Leave it out"
            key = name if name == "nbest" else f"decode.{name}"
            yield f"{key}={value} is not used by the {settings.kind} search of {NAMES[kind]}. {advice}."


def _search(scorer: Scorer, settings: Search) -> list[Output]:
    match scorer:
        case CtcScorer():
            return [*_search_ctc(scorer, settings)]
        case LabelScorer():
            return [*labels.best(scorer)]
        case EmbeddingScorer():
            return [*outputs.embeddings(scorer)]
        case FeatureScorer():
            return [*outputs.features(scorer)]
        case ActivityScorer():
            return [*outputs.activities(scorer)]
        case WaveformScorer():
            return [*outputs.waveforms(scorer)]
        case LikelihoodScorer():
            return [*outputs.likelihoods(scorer)]
        case TransducerScorer():
            return [*_search_transducer(scorer, settings)]
        case TokenScorer():
            return [*_search_tokens(scorer, settings)]


def _search_ctc(scorer: CtcScorer, settings: Search) -> list[Hypothesis]:
    if scorer.log_probs.isnan().any():  # a beam would drop those prefixes
        raise ModelError(DIVERGED)
    if settings.kind == "greedy":
        return ctc.greedy(scorer)
    return list(_with_frames(scorer, ctc.beam_search(scorer, settings.beam, settings.fusion)))


def _with_frames(scorer: CtcScorer, found: Sequence[Hypothesis]) -> Iterator[Hypothesis]:
    """What a beam found by the sum of many alignments, with the frames of the best of them."""
    aligned = ctc_alignment.align(scorer, [ctc_alignment.ForcedTokens(each.tokens) for each in found])
    for each, own in zip(found, aligned, strict=True):
        yield replace(own, score=each.score) if own else each


def _search_tokens(scorer: TokenScorer, settings: Search) -> list[Hypothesis]:
    if settings.kind == "greedy":
        return tokens.greedy(scorer)
    if settings.ctc_weight:
        scorer = _joint(scorer, settings.ctc_weight)
    nbest = max(1, settings.nbest)
    power = LENGTH_POWERS["tokens"] if settings.length_power is None else settings.length_power
    return _best(tokens.beam_search(scorer, settings.beam, power, nbest, settings.fusion), nbest)


def _joint(scorer: TokenScorer, weight: float) -> TokenScorer:
    if not isinstance(scorer, CtcTokenScorer):
        raise ModelError("decode.ctc_weight: this model has no CTC output. Leave it out.")
    return JointScorer(scorer, weight)


def _search_transducer(scorer: TransducerScorer, settings: Search) -> list[Hypothesis]:
    if settings.kind == "greedy":
        return transducer.greedy(scorer, graphed=scorer.device.type == "cuda")
    power = LENGTH_POWERS["transducer"] if settings.length_power is None else settings.length_power
    beam = transducer_beam.Beam(settings.beam, power, fusion=settings.fusion)
    return _best(transducer_beam.beam_search(scorer, beam), max(1, settings.nbest))


def _best(ranked: list[list[Hypothesis]], nbest: int) -> list[Hypothesis]:
    """The best of each utterance with the next best; scores that are NaN leave an utterance without any."""
    if not all(ranked):
        raise ModelError(DIVERGED)
    return [replace(found[0], nbest=tuple(found[1:nbest])) for found in ranked]


def _is_nan(output: Output) -> bool:
    match output:
        case Hypothesis() | Likelihood():
            return output.score is not None and math.isnan(output.score)
        case Embedding():
            return any(map(math.isnan, output.vector))
        case Activity() | Features():
            return bool(np.isnan(output.frames).any())
        case Waveform():
            return bool(np.isnan(output.samples).any())

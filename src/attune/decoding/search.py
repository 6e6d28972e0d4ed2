"""The entry of decoding: from a batch, or the scorer a model makes of it, to one output for each utterance.

Every kind of scorer has its search, chosen here and nowhere else. An output does not depend on who shares the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from attune.contracts import TaskModel
from attune.decoding import ctc, ctc_alignment, fallback, labels, outputs, tokens, transducer, transducer_beam
from attune.decoding.ctc_prefix import JointScorer
from attune.decoding.fusion import Fusion
from attune.decoding.phrases import PhraseBook
from attune.decoding.settings import FORMER, LENGTH_NORMS, USES, WIDEST, LengthNorm, SearchName
from attune.errors import ModelError
from attune.scorers import ScorerKind, kind_of
from attune.types import (
    Activity,
    ActivityScorer,
    Batch,
    CtcScorer,
    CtcTokenScorer,
    DecodingPrecision,
    Embedding,
    EmbeddingScorer,
    Features,
    FeatureScorer,
    Hypothesis,
    LabelScorer,
    Likelihood,
    LikelihoodScorer,
    Output,
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

    A beam's hypotheses are ranked by score / length ** `length_power` (None: by `LENGTH_NORMS`),
    and by a language model with `fusion`; `lm` is the file it was read from. `ctc_weight` is the part of CTC in
    joint decoding. A beam boosts the `phrases` of the book, and those of each utterance. With `fallback`, results that
    fail OpenAI's thresholds are decoded again by sampling (`decoding/fallback.py`). Half precision is faster on a GPU,
    int8 on a CPU; both may now and then find another hypothesis. `nbest` asks a beam for that many hypotheses, the best
    included. With a `temperature`, tokens are drawn instead of searched, the same ones each time.
    """

    kind: SearchName = "greedy"
    beam: int = 8
    length_power: float | None = None
    fallback: bool = False
    precision: DecodingPrecision = "fp32"
    nbest: int = 0
    temperature: float = 0.0
    ctc_weight: float = 0.0
    lm: str | None = None
    fusion: Fusion | None = field(default=None, repr=False)
    phrases: PhraseBook | None = None
    length_offset: float = 0.0  # of the default

    def length_norm(self, kind: ScorerKind) -> LengthNorm:
        """How this search of a model normalizes scores by length."""
        return LENGTH_NORMS[kind] if self.length_power is None else LengthNorm(self.length_power, self.length_offset)

    def as_json(self) -> dict[str, object]:
        """The settings as plain data."""
        settings: dict[str, object] = {
            "kind": self.kind,
            "beam": self.beam,
            "length_power": self.length_power,
            "fallback": self.fallback,
            "precision": self.precision,
        }
        if self.length_offset:
            settings["length_offset"] = self.length_offset
        if self.ctc_weight:
            settings["ctc_weight"] = self.ctc_weight
        if self.fusion:
            settings |= {"lm": self.lm, "lm_weight": self.fusion.weight, "lm_temperature": self.fusion.temperature}
        if self.phrases and self.phrases.phrases:
            settings |= {"phrases": list(self.phrases.phrases), "phrase_bonus": self.phrases.bonus}
        return settings

    def changed(self) -> dict[str, object]:
        """What is not as usual among the settings that some searches do not use."""
        names = ("beam", "length_power", "fallback", "nbest", "ctc_weight")
        values = {name: getattr(self, name) for name in names}
        found: dict[str, object] = {
            name: value for name, value in values.items() if value not in (getattr(USUAL, name), *FORMER.get(name, ()))
        }
        if self.phrases and self.phrases.phrases:
            found["phrases"] = ", ".join(self.phrases.phrases)
        return {**found, "lm": self.lm} if self.fusion else found

    def for_batch(self, batch: Batch, device: torch.device) -> Search:
        """The same search with the phrases of a batch; a greedy one has none."""
        if self.phrases is None or self.kind == "greedy":
            return self
        booster = self.phrases.booster(batch.phrases or ((),) * len(batch.ids), device)
        if booster is None:
            return self
        return replace(self, fusion=replace(self.fusion or Fusion(None), phrases=booster))


USUAL = Search()
NO_NORM = LengthNorm(0.0)


def decode_batch(task_model: TaskModel, batch: Batch, settings: Search) -> list[Output]:
    """The output for each utterance of a batch."""
    scorer = task_model.model.scorer(batch)
    if settings.temperature and not isinstance(scorer, TokenScorer):
        raise ModelError("`temperature` works with attention models only. Remove it.")
    # The beams of CTC are on the CPU, the others where the model is.
    settings = settings.for_batch(batch, torch.device("cpu") if task_model.scorer == "ctc" else batch.audio.device)
    # Before the search, which lets go of the rows that have ended.
    languages = task_model.detect_languages(scorer) if task_model.detect_languages else None
    if settings.temperature and isinstance(scorer, TokenScorer):
        found: list[Output] = [*fallback.draw(scorer, batch.ids, settings.temperature)]
    else:
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
    if settings.kind == "beam" and settings.beam > WIDEST.get(kind, settings.beam):
        yield f"decode.beam={settings.beam} is too wide for {NAMES[kind]}. Use at most {WIDEST[kind]}."
    for name, value in settings.changed().items():
        if name not in USES.get((settings.kind, kind), ()):
            has_use = name in USES.get(("beam", kind), ())
            advice = "Set decode.search=beam, or remove it" if has_use else "Remove it"
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
    found = ctc.beam_search(scorer, settings.beam, settings.fusion, max(1, settings.nbest))
    return list(_with_frames(scorer, _best(found, settings)))


def _with_frames(scorer: CtcScorer, found: Sequence[Hypothesis]) -> Iterator[Hypothesis]:
    """What a beam found by the sum of many alignments, with the frames of the best of them."""
    aligned = ctc_alignment.align(scorer, [ctc_alignment.ForcedTokens(each.tokens) for each in found])
    for each, own in zip(found, aligned, strict=True):
        yield replace(each, frames=own.frames, confidences=own.confidences, ends=own.ends) if own else each


def _search_tokens(scorer: TokenScorer, settings: Search) -> list[Hypothesis]:
    if settings.kind == "greedy":
        return tokens.greedy(scorer)
    if settings.ctc_weight:
        scorer = _joint(scorer, settings.ctc_weight)
    nbest = max(1, settings.nbest)
    norm = settings.length_norm("tokens")
    return _best(tokens.beam_search(scorer, settings.beam, norm, nbest, settings.fusion), settings, norm, scorer.end)


def _joint(scorer: TokenScorer, weight: float) -> TokenScorer:
    if not isinstance(scorer, CtcTokenScorer):
        raise ModelError("decode.ctc_weight: this model has no CTC output. Remove it.")
    return JointScorer(scorer, weight)


def _search_transducer(scorer: TransducerScorer, settings: Search) -> list[Hypothesis]:
    if settings.kind == "greedy":
        return transducer.greedy(scorer, graphed=scorer.device.type == "cuda")
    norm = settings.length_norm("transducer")
    beam = transducer_beam.Beam(settings.beam, norm.power, fusion=settings.fusion)
    return _best(transducer_beam.beam_search(scorer, beam), settings, norm)


def _best(
    ranked: list[list[Hypothesis]], settings: Search, norm: LengthNorm = NO_NORM, end: int | None = None
) -> list[Hypothesis]:
    """The best of each utterance with the next best; scores that are NaN leave an utterance without any."""
    if not all(ranked):
        raise ModelError(DIVERGED)
    if not settings.nbest:
        return [replace(found[0], parts=()) for found in ranked]
    listed = [
        _with_parts(
            found[: settings.nbest], settings.fusion.of(torch.tensor([row])) if settings.fusion else None, norm, end
        )
        for row, found in enumerate(ranked)
    ]
    return [replace(found[0], nbest=tuple(found[1:])) for found in listed]


def _with_parts(found: list[Hypothesis], fusion: Fusion | None, norm: LengthNorm, end: int | None) -> list[Hypothesis]:
    """An utterance's hypotheses with what each part of the search added to their ranks; the sum is the rank."""
    own = fusion.parts([each.tokens for each in found], end) if fusion else [{}] * len(found)
    return [replace(each, parts=tuple(_parts(each, more, norm).items())) for each, more in zip(found, own, strict=True)]


def _parts(hypothesis: Hypothesis, more: Mapping[str, float], norm: LengthNorm) -> dict[str, float]:
    parts = dict(hypothesis.parts) or {"acoustic": hypothesis.score}
    fused = parts.pop("fused", 0.0)
    # What phrases needed is known to the search alone; a transducer's language model changes what blanks weigh too.
    parts |= {"lm": more["lm"], "phrases": fused - more["lm"]} if len(more) == 2 else dict.fromkeys(more, fused)
    if norm.power:
        total = sum(parts.values())
        parts["length"] = total / norm.divisor(len(hypothesis.tokens) + 1) - total
    return parts


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

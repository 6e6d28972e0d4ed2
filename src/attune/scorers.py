"""What a search can search or read off: CTC, tokens one by one, transducers, labels, embeddings, activity, audio.

The search lives in `decoding`, which asks `kind_of` once.
"""

# B batch, T samples, F frames, S speakers or sources, V vocabulary, C classes, R rows of a search,
# P width of a prediction net, D durations or width of an embedding
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:  # scoring and configuration use these types without loading torch
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class CtcScorer:
    """CTC: a distribution per frame, blank is token 0."""

    log_probs: Tensor  # (B, F, V)
    lengths: Tensor  # (B,) frames


@dataclass(frozen=True, slots=True)
class LabelScorer:
    """One choice per utterance."""

    log_probs: Tensor  # (B, C)


@dataclass(frozen=True, slots=True)
class EmbeddingScorer:
    """One vector per utterance."""

    vectors: Tensor  # (B, D)


@dataclass(frozen=True, slots=True)
class ActivityScorer:
    """Who is active when: diarization, voice activity."""

    log_odds: Tensor  # (B, F, S)
    lengths: Tensor  # (B,) frames
    seconds_per_frame: float


@dataclass(frozen=True, slots=True)
class WaveformScorer:
    """Audio out: enhancement, separation."""

    audio: Tensor  # (B, T), or (B, S, T) for several sources
    lengths: Tensor  # (B,) samples


@dataclass(frozen=True, slots=True)
class LikelihoodScorer:
    """The log-probability of what was given, and of how many tokens: language models."""

    log_probs: Tensor  # (B,)
    counts: Tensor  # (B,)


class LogitFilter(Protocol):
    """A rule about what may be said next, such as those of `text/filters.py`."""

    def __call__(self, log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        """`log_probs` (R, V) with -inf for what may not follow `tokens` (R, N); something always may.

        What row r itself has said is `tokens[r, begins[r]:]`; before that stands its prefix.
        """


class TokenScorer(Protocol):
    """An attention model in mid-sentence: one state for each row, which the search moves on and rearranges.

    The rows are the utterances at first. All rows get their n-th token in the same call, so that one position holds for
    the whole cache, and never more than the longest `prefix + limit`.
    """

    device: torch.device
    end: int  # the token that ends a hypothesis

    @property
    def prefixes(self) -> Sequence[Sequence[int]]:
        """What each utterance's hypothesis begins with, a token or more; not its result."""

    @property
    def limits(self) -> Sequence[int]:
        """The most tokens of each utterance's result: a function of that utterance alone."""

    @property
    def filters(self) -> Sequence[LogitFilter]:
        """What may not be emitted."""

    def advance(self, tokens: Tensor) -> Tensor:
        """Give each row its next tokens (R, n): the log-probabilities (R, V) of what follows them, in float32.

        Only the first call has n > 1. The answer is read before the next call, which may write over it.
        """

    def select(self, rows: Tensor) -> None:
        """Row i goes on from what row `rows[i]` is now: rows are left out, repeated or put in another order.

        The rows of an utterance stay next to each other, the same number for all utterances. While there are as many
        rows as before, no row goes to another utterance: what only depends on the audio can stay where it is.
        """


States = tuple["Tensor", ...]  # (R, …) each: what a prediction net remembers of every row


@runtime_checkable
class TransducerScorer(Protocol):
    """A transducer: the encoder's frames, and a prediction net that the search moves on label by label.

    Hypotheses are rows of the search's own making: it says which utterance and frame each is at, and indexes and mixes
    their states as it likes.
    """

    device: torch.device
    lengths: Tensor  # (B,) encoder frames of each utterance
    blank: int  # the token that says nothing
    durations: tuple[int, ...]  # how many frames a token may take (TDT); empty where a blank takes one, a label none

    def start(self, rows: int) -> tuple[Tensor, States]:
        """What the prediction net says (R, P) before any label, and its states."""

    def predict(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """What it says (R, P) once each row has its next label (R,), and the new states."""

    def join(self, utterances: Tensor, frames: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the tokens (R, V) and of the durations (R, D), in float32.

        Row r is at frame `frames[r]` of utterance `utterances[r]`.
        """


class LanguageModel(Protocol):
    """What is likely to be said, whatever was heard: log-probabilities of each next label, for a beam of rows.

    Labels are the tokens of the model that is searched, by id. What is said of its blank is not read, and a blank that
    is last may be left out.
    """

    def start(self, rows: int) -> tuple[Tensor, States]:
        """Those of the first label (R, V), and the states."""

    def score(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """Those of what follows (R, V) once each row has its next label (R,), and the new states."""


Scorer = (
    CtcScorer
    | LabelScorer
    | EmbeddingScorer
    | ActivityScorer
    | WaveformScorer
    | LikelihoodScorer
    | TokenScorer
    | TransducerScorer
)
ScorerKind = Literal["ctc", "label", "tokens", "transducer", "embedding", "activity", "waveform", "likelihood"]

SEARCHED: tuple[ScorerKind, ...] = ("ctc", "label", "tokens", "transducer")  # their outputs are hypotheses
WITHOUT_MASKS: tuple[ScorerKind, ...] = ("waveform", "likelihood")  # their models have no features to mask

_KINDS: dict[type, ScorerKind] = {
    CtcScorer: "ctc",
    LabelScorer: "label",
    EmbeddingScorer: "embedding",
    ActivityScorer: "activity",
    WaveformScorer: "waveform",
    LikelihoodScorer: "likelihood",
}


def kind_of(scorer: Scorer) -> ScorerKind:
    """Which kind of scorer this is: the one place that looks at its type."""
    if type(scorer) in _KINDS:
        return _KINDS[type(scorer)]
    return "transducer" if isinstance(scorer, TransducerScorer) else "tokens"

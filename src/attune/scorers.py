"""What a model gives to decoding, one type for each kind: what can be searched, and what can be read off.

The searches are in `decoding/search.py`.
"""

# B batch, T samples, F frames, V vocabulary, C classes, S speakers or sources, R rows of a search
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:  # scoring and configuration use these types without loading torch
    import numpy as np
    import torch
    from numpy.typing import NDArray
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
    """One vector per utterance, such as a speaker embedding."""

    vectors: Tensor  # (B, D)


@dataclass(frozen=True, slots=True)
class FeatureScorer:
    """The frames of each utterance themselves, for what compares whole recordings, such as a search by example."""

    frames: Tensor  # (B, F, D)
    lengths: Tensor  # (B,) frames


@dataclass(frozen=True, slots=True)
class ActivityScorer:
    """Who or what is active in each frame: diarization, voice activity detection."""

    log_odds: Tensor  # (B, F, S): logits of independent yes-or-no decisions
    lengths: Tensor  # (B,) frames
    seconds_per_frame: float


@dataclass(frozen=True, slots=True)
class WaveformScorer:
    """Audio out: enhancement (one source), separation (several)."""

    audio: Tensor  # (B, T) or (B, S, T)
    lengths: Tensor  # (B,) samples


@dataclass(frozen=True, slots=True)
class LikelihoodScorer:
    """How probable the given text is, for language models: perplexity is exp(-sum of log_probs / sum of counts)."""

    log_probs: Tensor  # (B,)
    counts: Tensor  # (B,) tokens


class LogitFilter(Protocol):
    """A rule about which tokens may come next, such as those of `text/filters.py`."""

    def __call__(self, log_probs: Tensor, tokens: Tensor, begins: Tensor) -> Tensor:
        """`log_probs` (R, V) with -inf for what may not follow `tokens` (R, N); at least one token stays allowed.

        What row r itself has emitted is `tokens[r, begins[r]:]`; before that comes its prompt.
        """


@runtime_checkable
class TokenScorer(Protocol):
    """An attention decoder in mid-sequence: one state (cache) per row, which the search advances and reorders.

    The rows are the utterances at first. All rows get their n-th token in the same call, so that one position holds for
    the whole cache, and never more than the longest `prefix + limit`.
    """

    device: torch.device
    end: int  # the token that ends a hypothesis

    @property
    def prefixes(self) -> Sequence[Sequence[int]]:
        """The prompt of each utterance, at least one token; not part of the result."""

    @property
    def limits(self) -> Sequence[int]:
        """The most tokens of each utterance's result: a function of that utterance alone."""

    @property
    def filters(self) -> Sequence[LogitFilter]:
        """Which tokens may come next."""

    def advance(self, tokens: Tensor) -> Tensor:
        """Feed each row its next tokens (R, n): the log-probabilities (R, V) of what follows them, in float32.

        Only the first call has n > 1. The result is read before the next call, which may overwrite it.
        """

    def select(self, rows: Tensor) -> None:
        """Row i continues from what row `rows[i]` is now: rows are dropped, repeated or reordered.

        The rows of an utterance stay next to each other, the same number for all utterances. While there are as many
        rows as before, no row goes to another utterance: what only depends on the audio can stay where it is.
        """


@runtime_checkable
class CtcTokenScorer(TokenScorer, Protocol):
    """An attention decoder of a model that has a CTC output too, over the same tokens: both can be searched jointly."""

    @property
    def ctc(self) -> CtcScorer:
        """The CTC output for each utterance, blank being token 0."""


@runtime_checkable
class CombinedScorer(TokenScorer, Protocol):
    """A TokenScorer whose log-probabilities are the sum of parts, such as attention and CTC."""

    @property
    def parts(self) -> Mapping[str, Tensor]:
        """What the last log-probabilities consist of, by name (R, V) or (R, 1); the same names each time."""


States = tuple["Tensor", ...]  # (R, …) each: the recurrent state of every row


@runtime_checkable
class TransducerScorer(Protocol):
    """A transducer: the encoder's frames, and a prediction network that the search advances label by label.

    Hypotheses are rows of the search's own making: it gives the utterance and frame of each, and indexes and mixes
    their states as it likes.
    """

    # P width of the prediction network's output, D durations
    device: torch.device
    lengths: Tensor  # (B,) encoder frames of each utterance
    blank: int  # the token that emits nothing
    durations: tuple[int, ...]  # how many frames a token may take (TDT); empty where a blank takes one, a label none

    def start(self, rows: int) -> tuple[Tensor, States]:
        """The prediction network's output (R, P) before any label, and its states."""

    def predict(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """Its output (R, P) once each row has its next label (R,), and the new states."""

    def join(self, utterances: Tensor, frames: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the tokens (R, V) and of the durations (R, D), in float32.

        Row r is at frame `frames[r]` of utterance `utterances[r]`.
        """


StreamT = TypeVar("StreamT")


class StreamingEncoder(Protocol[StreamT]):
    """Encodes recordings while they come, chunk by chunk, with the frames that the whole recording would have."""

    def open(self) -> StreamT:
        """A stream before its first sample."""

    def feed(self, stream: StreamT, samples: NDArray[np.float32], is_last: bool = False) -> None:
        """Go on with more samples."""

    def is_ready(self, stream: StreamT) -> bool:
        """Whether there is another chunk to search."""

    def step(self, streams: Sequence[StreamT]) -> TransducerScorer:
        """The next chunk of each of these streams, which are ready."""


@runtime_checkable
class StreamingModel(Protocol):
    """A model that may hear streams, if it was trained for it."""

    @property
    def can_stream(self) -> bool:
        """Whether it was."""

    def stream_encoder(self) -> StreamingEncoder[Any]:
        """What encodes them."""


class LanguageModel(Protocol):
    """Log-probabilities of each next token from the text alone, for a beam of rows (`decoding/fusion.py`).

    Tokens are those of the model that is searched, by id; what is returned for its blank is not read. Tokens at the
    end of the vocabulary may be left out (a blank that is last, timestamps): they cost nothing and change no state.
    """

    def start(self, rows: int) -> tuple[Tensor, States]:
        """Those of the first token (R, V), and the states."""

    def score(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """Those of the next one (R, V) once each row has its next label (R,), and the new states."""


@runtime_checkable
class EndedModel(Protocol):
    """A language model that has something to add where the audio ends, in searches without a token for the end."""

    def finish(self, states: States) -> Tensor:
        """The log-probability of the end (R,), and of what is not counted yet, such as the last word."""


Scorer = (
    CtcScorer
    | LabelScorer
    | TokenScorer
    | TransducerScorer
    | EmbeddingScorer
    | FeatureScorer
    | ActivityScorer
    | WaveformScorer
    | LikelihoodScorer
)
ScorerKind = Literal[
    "ctc", "label", "tokens", "transducer", "embedding", "features", "activity", "waveform", "likelihood"
]

SEARCHED: tuple[ScorerKind, ...] = ("ctc", "label", "tokens", "transducer")  # their outputs are hypotheses
WITHOUT_MASKS: tuple[ScorerKind, ...] = ("waveform", "likelihood", "features")  # their models have no features to mask
CROPPED: tuple[ScorerKind, ...] = ("label", "embedding")  # what is learned holds for any part of an utterance

_KINDS: dict[type, ScorerKind] = {
    CtcScorer: "ctc",
    LabelScorer: "label",
    EmbeddingScorer: "embedding",
    FeatureScorer: "features",
    ActivityScorer: "activity",
    WaveformScorer: "waveform",
    LikelihoodScorer: "likelihood",
}


def kind_of(scorer: Scorer) -> ScorerKind:
    """Which kind a scorer is: the dataclasses by their type, the two protocols by their methods."""
    if kind := _KINDS.get(type(scorer)):
        return kind
    if isinstance(scorer, TransducerScorer):
        return "transducer"
    if isinstance(scorer, TokenScorer):
        return "tokens"
    raise TypeError(f"model.scorer() returned {type(scorer).__name__}, which is not a scorer; see attune/scorers.py.")

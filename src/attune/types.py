"""The nouns: every value that crosses a module boundary. Frozen, typed, never a dict.

What a search searches is in `attune.scorers`, what is predicted and how it is scored in `attune.metrics`; both have
their names here too.

`source → file → Utterance → Step (row numbers) → Batch → Loss | Scorer → Prediction → Scores → report`
"""

# B batch, T samples, F frames, U target tokens, V vocabulary, C classes
from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from attune.errors import ModelError
from attune.metrics import Json as Json
from attune.metrics import Metric as Metric
from attune.metrics import Prediction as Prediction
from attune.metrics import Score as Score
from attune.metrics import Scores as Scores
from attune.scorers import ActivityScorer as ActivityScorer
from attune.scorers import CombinedScorer as CombinedScorer
from attune.scorers import CtcScorer as CtcScorer
from attune.scorers import CtcTokenScorer as CtcTokenScorer
from attune.scorers import EmbeddingScorer as EmbeddingScorer
from attune.scorers import FeatureScorer as FeatureScorer
from attune.scorers import LabelScorer as LabelScorer
from attune.scorers import LanguageModel as LanguageModel
from attune.scorers import LikelihoodScorer as LikelihoodScorer
from attune.scorers import LogitFilter as LogitFilter
from attune.scorers import Scorer as Scorer
from attune.scorers import States as States
from attune.scorers import TokenScorer as TokenScorer
from attune.scorers import TransducerScorer as TransducerScorer
from attune.scorers import WaveformScorer as WaveformScorer

if TYPE_CHECKING:  # scoring and configuration use these types without loading torch
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from attune.audio.settings import MasksConfig

SAMPLE_RATE = 16_000
Precision = Literal["fp32", "bf16", "fp16"]  # what a model computes in
DecodingPrecision = Literal["fp32", "bf16", "fp16", "int8"]


@dataclass(frozen=True, slots=True)
class SpeakerSegment:
    """Who speaks from `start` to `end`, in seconds of the utterance, and maybe what."""

    start: float
    end: float
    speaker: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Utterance:
    """One manifest row. `audio` is absent for text-only data; `start` marks a slice of a longer recording.

    `signals` are further recordings of the same time by their role, such as `clean` speech or the sources of a mixture.

    `audio` is a file, or an address as text (`s3://…`). The recording is all of it, the `byte_count` bytes of it from
    `first_byte` on (a shard), or one `row` of it (Parquet).
    """

    id: str
    seconds: float
    audio: Path | str | None = None
    start: float | None = None
    text: str | None = None
    speaker: str | None = None
    language: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    where: str = ""  # manifest and line, for messages
    channel: int | None = None  # counted from 0; absent: the mean of all
    first_byte: int | None = None
    byte_count: int | None = None
    row: int | None = None
    signals: Mapping[str, Path] = field(default_factory=dict)
    segments: tuple[SpeakerSegment, ...] = ()
    phrases: tuple[str, ...] = ()  # names and terms that a beam search may expect in it


class TensorFields(Protocol):
    """A frozen dataclass whose fields are tensors: what a task learns from where tokens do not say it.

    Of one utterance the tensors have no batch dimension. In a batch each has one, first, and is zero beyond the
    utterance's own size; a field with that size, such as `lengths`, is the task's to keep.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


@dataclass(frozen=True, slots=True)
class TokenTargets:
    """Token or label ids of a batch."""

    ids: Tensor  # (B, U), zero beyond own length
    lengths: Tensor  # (B,)


Target = tuple[int, ...] | TensorFields  # of one utterance: token ids, or the task's own tensors
Targets = TokenTargets | TensorFields  # of a batch
Fields = TypeVar("Fields", bound=TensorFields)


def with_tensors(record: Fields, change: Callable[[Tensor], Tensor]) -> Fields:
    """The same record with each of its tensors changed."""
    return replace(record, **{each.name: change(getattr(record, each.name)) for each in fields(record)})


def tokens_of(target: Target) -> tuple[int, ...]:
    """The token ids that a target is."""
    if not isinstance(target, tuple):
        raise ModelError(
            f"This model needs tokens; its task gives {type(target).__name__}. Choose another task or family."
        )
    return target


def target_text(target: Target) -> str:
    """A target for people to read: token ids, or the shapes of its tensors."""
    if isinstance(target, tuple):
        return " ".join(map(str, target))
    return ", ".join(f"{each.name} {tuple(getattr(target, each.name).shape)}" for each in fields(target))


@dataclass(frozen=True, slots=True)
class CachedRow:
    """The name under which features of an utterance are kept and, where they are there already, the features."""

    key: str
    samples: int = 0
    layers: Tensor | None = None  # (L, F, D)
    file: Path | None = None  # safetensors, where the features are under their key


class FeatureCache(Protocol):
    """Keeps what a frozen part of a model computes, so that it is computed once for each utterance."""

    @property
    def held(self) -> Container[str]:
        """The names of features that are in memory, and need not be read."""

    def lookup(self) -> Callable[[Utterance], CachedRow | None]:
        """What finds the features of an utterance, in any process; its weights are those that the model has now."""

    def note(self, seconds: float) -> str:
        """How large it will be for so much audio, and where; raises ConfigError where there is no room."""

    def folder(self) -> Path:
        """Where what these weights compute is kept; its name is a fingerprint of them."""

    def compute(self, batches: Iterable[Batch], path: Path) -> None:
        """Compute all of these batches, and write them to a file that `lookup` reads in the folder."""


@dataclass(frozen=True, slots=True)
class CachedFeatures:
    """What is kept of a batch, by row."""

    keys: tuple[str, ...]
    layers: Tensor | None = None  # (B, L, F, D), zero beyond own frames; None: some are not there yet
    counts: Tensor | None = None  # (B,) own frames
    files: tuple[Path, ...] = ()  # of each row's features, which a worker does not send


@dataclass(frozen=True, slots=True)
class LoadedRow:
    """An utterance that is ready to be padded with others into a batch."""

    id: str
    audio: NDArray[np.float32]  # (T,); without samples where the task is about text alone
    target: Target
    turn: int = 0  # in a mix: how often the utterance was there before in this epoch
    cached: CachedRow | None = None  # with its features, the audio may be left out
    phrases: tuple[str, ...] = ()  # of the utterance, for a search


@dataclass(frozen=True, slots=True)
class Masks:
    """SpecAugment for a batch: what was drawn for each row, and what the recipe says."""

    draws: Tensor  # (B, masks, 2): how wide and where, both in [0, 1)
    settings: MasksConfig


@dataclass(frozen=True, slots=True)
class Batch:
    """Utterances padded together; every row is read only up to its own length."""

    ids: tuple[str, ...]
    audio: Tensor  # (B, T) float32, zero beyond own length; T is 0 where the task is about text alone
    lengths: Tensor  # (B,) samples
    targets: Targets  # in decoding, what the search starts from
    masks: Masks | None = None  # how to hide parts of the features, in training only
    cached: CachedFeatures | None = None  # where a frozen upstream's features are kept
    phrases: tuple[tuple[str, ...], ...] = ()  # of each utterance, where any has some

    @property
    def tokens(self) -> TokenTargets:
        """The targets of a task that learns tokens or labels."""
        if not isinstance(self.targets, TokenTargets):
            raise ModelError(
                f"This model needs tokens; its task gives {type(self.targets).__name__}. Choose another task or family."
            )
        return self.targets

    def to(self, device: torch.device) -> Batch:
        """The same batch with its tensors on `device`."""
        return self.with_tensors(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """The same batch in memory that a device can read while it computes."""
        return self.with_tensors(lambda tensor: tensor.pin_memory())

    def with_tensors(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with each of its tensors changed."""
        return replace(
            self,
            audio=change(self.audio),
            lengths=change(self.lengths),
            targets=with_tensors(self.targets, change),
            masks=self.masks and replace(self.masks, draws=change(self.masks.draws)),
            cached=self.cached and _with_features(self.cached, change),
        )


def _with_features(cached: CachedFeatures, change: Callable[[Tensor], Tensor]) -> CachedFeatures:
    layers = None if cached.layers is None else change(cached.layers)
    return replace(cached, layers=layers, counts=None if cached.counts is None else change(cached.counts))


@dataclass(frozen=True, slots=True)
class Loss:
    """A sum over what was predicted, and how much that was; the loop divides once, by the count of the whole step."""

    total: Tensor  # ()
    count: Tensor  # ()


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A token sequence and its log-probability by the model alone; CTC's and a transducer's tokens have frames.

    A token begins at its frame and, where `ends` are known, lasts up to that frame. `filtered_log_prob` is the
    log-probability among what the filters allowed, in a token-by-token search.
    """

    tokens: tuple[int, ...]
    score: float
    frames: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    nbest: tuple[Hypothesis, ...] = ()  # the next best, where the search was asked for them
    filtered_log_prob: float | None = None
    language: str | None = None  # given or detected, of a model that detects languages
    ends: tuple[int, ...] = ()
    parts: tuple[tuple[str, float], ...] = ()  # what each part of the search added to its rank, of an n-best list


@runtime_checkable
class AligningModel(Protocol):
    """A model that finds the frames of a hypothesis's tokens after the search, at the cost of another pass."""

    def align(self, batch: Batch, found: Sequence[Hypothesis]) -> list[Hypothesis]:
        """The same hypotheses with a frame and a confidence for each token."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of an utterance."""

    vector: tuple[float, ...]  # (D,)
    score: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """The frames of an utterance; they are written to a file beside the predictions."""

    frames: NDArray[np.float32]  # (F, D)
    score: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """How probable it is in each frame that each speaker (or class) is active."""

    frames: NDArray[np.float32]  # (F, S)
    seconds_per_frame: float
    score: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Waveform:
    """Audio that a model made: one signal, or one for each source."""

    samples: NDArray[np.float32]  # (T,) or (S, T)
    rate: int = SAMPLE_RATE
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The log-probability of a given text, and over how many tokens."""

    log_prob: float
    count: int

    @property
    def score(self) -> float | None:
        """The log-probability."""
        return self.log_prob


Output = Hypothesis | Embedding | Features | Activity | Waveform | Likelihood  # of a search, for one utterance


def require_text(value: Json) -> str:
    """The value of a task about text."""
    if not isinstance(value, str):
        raise ModelError(f"Expected a task that predicts text; this one predicts {type(value).__name__}.")
    return value


def require_hypothesis(output: Output) -> Hypothesis:
    """The output of a model that is searched for tokens or labels."""
    if not isinstance(output, Hypothesis):
        raise ModelError(f"Expected a model that emits tokens; this one emits {type(output).__name__}.")
    return output


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a hypothesis, from when to when it lasts, and how sure the model was of it."""

    text: str
    start: float  # seconds
    end: float
    confidence: float


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A piece of a transcript from `start` to `end`, in seconds of the recording."""

    start: float
    end: float
    text: str
    mean_log_prob: float = 0.0  # per token, the end included


@dataclass(frozen=True, slots=True)
class ScoringContext:
    """What scoring may need beside the predictions."""

    split: str  # dev, test, train, or a manifest's name
    folder: Path  # where the files that predictions name are
    files: Mapping[str, Path]  # what the task asked for by `scoring_files`, on this machine
    utterance: Callable[[str], Utterance]  # by id: references with times, audio, speakers


@runtime_checkable
class LayerWeighted(Protocol):
    """A model whose head sees a weighted sum of an encoder's layers; the weights go into scores and the model card."""

    def layer_weights(self) -> Mapping[int, float]:
        """How much each layer counts, by its number from the input; all together 1."""


@dataclass(frozen=True, slots=True)
class ImportedSearch:
    """How a checkpoint was decoded: settings for the language model that came with it, and what attune has not."""

    fusion: tuple[str, ...] = ()  # decode.lm_weight=0.5
    left_out: tuple[str, ...] = ()  # kenlm=0.3

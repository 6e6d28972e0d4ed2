"""The nouns: every value that crosses a module boundary. Frozen, typed, never a dict.

What a search searches is in `attune.scorers`, what is predicted and how it is scored in `attune.metrics`; both have
their names here too.

`source → file → Utterance → Step (row numbers) → Batch → Loss | Scorer → Prediction → Scores → report`
"""

# B batch, T samples, F frames, U target tokens, V vocabulary, C classes
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from attune.metrics import Json as Json
from attune.metrics import Metric as Metric
from attune.metrics import Prediction as Prediction
from attune.metrics import Score as Score
from attune.metrics import Scores as Scores
from attune.metrics import ScoringContext as ScoringContext
from attune.scorers import CtcScorer as CtcScorer
from attune.scorers import LabelScorer as LabelScorer
from attune.scorers import LanguageModel as LanguageModel
from attune.scorers import LogitFilter as LogitFilter
from attune.scorers import Scorer as Scorer
from attune.scorers import States as States
from attune.scorers import TokenScorer as TokenScorer
from attune.scorers import TransducerScorer as TransducerScorer

if TYPE_CHECKING:  # scoring and configuration use these types without loading torch
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

SAMPLE_RATE = 16_000
Precision = Literal["fp32", "bf16", "fp16"]  # what a model computes in


@dataclass(frozen=True, slots=True)
class Utterance:
    """One manifest row. `audio` is absent for text-only data; `start` marks a slice of a longer recording.

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


@dataclass(frozen=True, slots=True)
class LoadedRow:
    """An utterance that is ready to be padded with others into a batch."""

    id: str
    audio: NDArray[np.float32]  # (T,)
    target: tuple[int, ...]
    turn: int = 0  # in a mix: how often the utterance was there before in this epoch


@dataclass(frozen=True, slots=True)
class Masks:
    """SpecAugment for a batch: what was drawn for each row, and what the recipe says (`audio.settings.MasksConfig`)."""

    draws: Tensor  # (B, masks, 2): how wide and where, both in [0, 1)
    settings: Any


@dataclass(frozen=True, slots=True)
class Batch:
    """Utterances padded together; every row is read only up to its own length."""

    ids: tuple[str, ...]
    audio: Tensor  # (B, T) float32, zero beyond own length
    lengths: Tensor  # (B,) samples
    targets: Tensor  # (B, U) token ids, zero beyond own length
    target_lengths: Tensor  # (B,)
    masks: Masks | None = None  # how to hide parts of the features, in training only

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
            targets=change(self.targets),
            target_lengths=change(self.target_lengths),
            masks=self.masks and replace(self.masks, draws=change(self.masks.draws)),
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """A sum over what was predicted, and how much that was; the loop divides once, by the count of the whole step."""

    total: Tensor  # ()
    count: Tensor  # ()


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a search found: token ids and their log-probability; a transducer's have a frame and a probability each.

    `filtered_log_prob` is the log-probability among what the filters allowed, where tokens are found one by one.
    """

    tokens: tuple[int, ...]
    score: float
    frames: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    nbest: tuple[Hypothesis, ...] = ()  # the next best, where the search was asked for them
    filtered_log_prob: float | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a hypothesis, when it begins, and how sure the model was of it."""

    text: str
    start: float  # seconds
    confidence: float


class Head(Protocol):
    """A task's module on top of an encoder; an `nn.Module`.

    Its last layer, whose rows belong to the task's tokens or labels, is called `output`: another vocabulary never
    inherits those rows.
    """

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """The summed loss of the encoder's frames (B, F, D) against the batch's targets."""

    def scorer(self, frames: Tensor, lengths: Tensor) -> Scorer:
        """What a search can search."""


class Task(Protocol):
    """What to learn and how it is scored. `tasks/NAME.py` exports the class as TASK.

    `prepare` learns what the task needs from the training utterances (vocabulary, label names) and writes it to
    `folder`; the constructor reads it back.
    """

    Config: ClassVar[type]
    metrics: ClassVar[tuple[Metric, ...]]  # the first is the primary one
    scored_over: ClassVar[Literal["utterances", "set"]]  # "set": a part of a set has no scores, as with trial pairs

    def __init__(self, config: Any, folder: Path) -> None: ...

    @staticmethod
    def missing_field(config: Any, utterance: Utterance) -> str | None:
        """What the utterance would need for this task and does not have, such as a text."""

    @staticmethod
    def prepare(config: Any, utterances: Iterable[Utterance], folder: Path) -> None:
        """Learn from the training utterances and write to `folder`, once per run."""

    @staticmethod
    def can_reuse(config: Any, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether what a pretrained model's task prepared in `folder` does for this config and these utterances."""

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The token or class ids to learn."""

    def reference(self, utterance: Utterance) -> Json:
        """What a prediction is compared with."""

    def frames_needed(self, target: Sequence[int]) -> int:
        """The fewest encoder frames from which the target can be learned."""

    def head(self, width: int) -> Head:
        """A new module for encoder frames of this width."""

    def read(self, hypothesis: Hypothesis) -> str:
        """What a hypothesis says."""

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """What scoring this split needs beside the predictions: path or address by name, such as {"trials": …}.

        Asked before anything is decoded; a task that could not score says so here.
        """

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """The declared metrics of these predictions; NaN where nothing can be scored."""


@runtime_checkable
class TextTask(Protocol):
    """A task about text, for families that bring their own tokens: what to learn, without the task's vocabulary."""

    @property
    def language(self) -> str | None:
        """The language of utterances that do not name theirs."""

    def text(self, utterance: Utterance) -> str:
        """The text to learn."""


@runtime_checkable
class TokenizedTask(Protocol):
    """A task whose targets are tokens, for families that need to know how each is written."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """How every token is written, the blank and the unknown first."""

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The token ids to learn."""

    def read(self, hypothesis: Hypothesis) -> str:
        """What a hypothesis says."""


@runtime_checkable
class HubTask(Protocol):
    """A task that the Hugging Face Hub has a name for, which goes into the model card."""

    pipeline_tag: ClassVar[str]  # such as automatic-speech-recognition


@runtime_checkable
class StepStatistics(Protocol):
    """A module with statistics of a whole step, which are added up over micro-batches and ranks as gradients are."""

    def begin_step(self) -> Tensor:
        """A leaf to whose gradient every backward adds what its micro-batch counts for."""

    @staticmethod
    def settle(modules: Sequence[Any], totals: Sequence[Tensor]) -> None:
        """Give all modules of this kind their sums over the step, once its weights have been updated.

        All together: a model may have a hundred of them, and a device waits for every small operation.
        """


@runtime_checkable
class HalfPrecisionModel(Protocol):
    """A model that decodes in a narrower type with some of it in its own; all others are cast whole."""

    def narrowed(self, dtype: torch.dtype) -> Any:
        """The same weights as a model that decodes so."""


class SpeechModel(Protocol):
    """What the loop trains and the search decodes; an `nn.Module`."""

    def loss(self, batch: Batch) -> Loss:
        """The summed loss of a batch."""

    def scorer(self, batch: Batch) -> Scorer:
        """What a search can search."""

    def frames(self, samples: int) -> int:
        """How many frames the encoder makes of this much audio."""

    def graph_samples(self, samples: int) -> int | None:
        """What to pad a batch of so many samples to when its loss is recorded as a CUDA graph, one for each length.

        None: it cannot be recorded, because it looks at values on the way.
        """


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A model with the ends a family may define itself: an utterance to ids, and ids to text or label."""

    model: Any  # a Model that is an nn.Module
    target: Callable[[Utterance], tuple[int, ...]]
    read: Callable[[Hypothesis], str]
    prompt: Callable[[Utterance], tuple[int, ...]] | None = None  # what decoding begins with, as Batch.targets
    frames_needed: Callable[[Sequence[int]], int] = lambda target: 0  # the fewest from which a target can be learned
    longest_seconds: float | None = None  # what the model can hear at once; longer recordings are cut in pauses
    seconds_per_frame: float | None = None  # where hypotheses have frames: from one to the next
    pieces: Sequence[str] = ()  # how the tokenizer writes each token, by id; a blank that is last has none
    pack: Callable[[Sequence[LoadedRow]], list[LoadedRow]] | None = None  # joins rows of a micro-batch, for training
    join: Callable[[Sequence[str], Utterance], str] = lambda texts, whole: " ".join(filter(None, texts))  # of pieces
    timestamp_begin: int | None = None  # the token of 0.00 s, where times are said; others follow in steps of 0.02 s
    detect_languages: Callable[[Any], list[str]] | None = None  # by a scorer in each row, where none was told; codes
    written: Callable[[Sequence[int]], str] | None = None  # a target with all that is not text by name, to be shown


@dataclass(frozen=True, slots=True)
class RemappedWeights:
    """Pretrained weights for a model with other tokens: which tensors are partly new, and what to tell the user."""

    tensors: Mapping[str, Tensor]
    renewed: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of pretrained model. `families/NAME/__init__.py` exports one as FAMILY.

    `build(config, task, assets)` makes the model with fresh weights; `assets` is a folder with whatever else it must
    know (an architecture, a tokenizer). A family that can start from other toolkits' checkpoints has
    `import_checkpoint(config, path, assets)`, which writes that folder and returns the weights under the model's own
    names. `recognizes(path)` tells whether a file or folder looks like one of these; `recommended_overrides(assets)`
    has the recipe settings that the checkpoint itself asks for.
    """

    config: type
    build: Callable[[Any, Task, Path], TaskModel]
    recognizes: Callable[[Path], bool] = lambda path: False
    import_checkpoint: Callable[[Any, Path, Path], Mapping[str, Tensor]] | None = None
    recommended_overrides: Callable[[Path], Sequence[str]] = lambda assets: ()
    export: Callable[[Any, Path, Path], None] | None = None
    to_transformers: Callable[[Any, Path, Path], None] | None = None
    has_own_vocabulary: bool | Callable[[Any], bool] = False
    architecture_settings: tuple[str, ...] = ()
    remap_vocabulary: Callable[[Any, Mapping[str, Tensor], Path, Path], RemappedWeights] | None = None
    sources: tuple[str, ...] = ("weights",)

    def brings_vocabulary(self, config: Any) -> bool:
        """Whether a model under this config learns text in tokens of its own."""
        return self.has_own_vocabulary(config) if callable(self.has_own_vocabulary) else self.has_own_vocabulary

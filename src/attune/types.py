"""The nouns: every value that crosses a module boundary. Frozen, typed, never a dict.

`source → file → Utterance → Step (row numbers) → Batch → Loss | Scorer → Prediction → Scores → report`
"""

# B batch, T samples, F frames, U target tokens, V vocabulary, C classes
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:  # scoring and configuration use these types without loading torch
    import torch
    from torch import Tensor

SAMPLE_RATE = 16_000


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
class Masks:
    """SpecAugment for a batch: a seed for each row, and the recipe's settings (`audio.settings.MasksConfig`)."""

    seeds: tuple[int, ...]
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
        return replace(
            self,
            audio=self.audio.to(device, non_blocking=True),
            lengths=self.lengths.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
            target_lengths=self.target_lengths.to(device, non_blocking=True),
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """A sum over what was predicted, and how much that was; the loop divides once, by the count of the whole step."""

    total: Tensor  # ()
    count: Tensor  # ()


@dataclass(frozen=True, slots=True)
class FrameScorer:
    """CTC: a distribution per frame, blank is token 0."""

    log_probs: Tensor  # (B, F, V)
    lengths: Tensor  # (B,) frames


@dataclass(frozen=True, slots=True)
class LabelScorer:
    """One choice per utterance."""

    log_probs: Tensor  # (B, C)


class Filter(Protocol):
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
    prefixes: Sequence[Sequence[int]]  # what each utterance's hypothesis begins with, a token or more; not its result
    limits: Sequence[int]  # the most tokens of each utterance's result: a function of that utterance alone
    filters: Sequence[Filter]

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


Scorer = FrameScorer | LabelScorer | TokenScorer


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What a search found: token ids and their log-probability; a transducer's have a frame and a probability each."""

    tokens: tuple[int, ...]
    score: float
    frames: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """A line of `predictions/*.jsonl`; scoring needs nothing else. No value means the utterance could not be read."""

    id: str
    value: str | None
    reference: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A figure with its 95 % bootstrap interval over utterances."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scores:
    """What reports and best-checkpoint read: figures by name, and the counts they come from."""

    values: Mapping[str, Score]
    counts: Mapping[str, int]
    normalizer: str = "none"


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

    def __init__(self, config: Any, folder: Path) -> None: ...

    @staticmethod
    def lacks(config: Any, utterance: Utterance) -> str | None:
        """What the utterance would need for this task and does not have, such as a text."""

    @staticmethod
    def prepare(config: Any, utterances: Iterable[Utterance], folder: Path) -> None:
        """Learn from the training utterances and write to `folder`, once per run."""

    @staticmethod
    def serves(config: Any, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether what a pretrained model's task prepared in `folder` does for this config and these utterances."""

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The token or class ids to learn."""

    def reference(self, utterance: Utterance) -> str:
        """What a perfect prediction would say."""

    def frames_needed(self, target: Sequence[int]) -> int:
        """The fewest encoder frames from which the target can be learned."""

    def head(self, width: int) -> Head:
        """A new module for encoder frames of this width."""

    def read(self, hypothesis: Hypothesis) -> str:
        """What a hypothesis says."""

    def score(self, predictions: Sequence[Prediction]) -> Scores:
        """The task's figures."""


@runtime_checkable
class TextTask(Protocol):
    """A task about text, for families that bring their own tokens: what to learn, without the task's vocabulary."""

    @property
    def language(self) -> str | None:
        """The language of utterances that do not name theirs."""

    def text(self, utterance: Utterance) -> str:
        """The text to learn."""


class Model(Protocol):
    """What the loop trains and the search decodes; an `nn.Module`."""

    fits_graphs: bool  # whether its loss can be recorded as a CUDA graph: no look at values on the way

    def loss(self, batch: Batch) -> Loss:
        """The summed loss of a batch."""

    def scorer(self, batch: Batch) -> Scorer:
        """What a search can search."""

    def frames(self, samples: int) -> int:
        """How many frames the encoder makes of this much audio."""


@dataclass(frozen=True, slots=True)
class Built:
    """A model with the ends a family may define itself: an utterance to ids, and ids to text or label."""

    model: Any  # a Model that is an nn.Module
    target: Callable[[Utterance], tuple[int, ...]]
    read: Callable[[Hypothesis], str]
    prompt: Callable[[Utterance], tuple[int, ...]] | None = None  # what decoding begins with, as Batch.targets
    frames_needed: Callable[[Sequence[int]], int] = lambda target: 0  # the fewest from which a target can be learned
    longest_seconds: float | None = None  # what the model can hear at once; longer recordings are cut in pauses


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of pretrained model. `families/NAME/__init__.py` exports one as FAMILY.

    `build(config, task, assets)` makes the model with fresh weights; `assets` is a folder with whatever else it must
    know (an architecture, a tokenizer). A family that can start from others' checkpoints has `adopt(config, path,
    assets)`, which writes that folder and returns the weights under the model's own names. `export(model, assets,
    folder)` adds the files that let others load the exported model. A family that `has_own_tokens` learns a TextTask's
    text in them, and the task prepares nothing. Weights are trained under the settings `bound_to`, others' under their
    defaults: an evaluation must keep them.
    """

    config: type
    build: Callable[[Any, Task, Path], Built]
    adopt: Callable[[Any, Path, Path], Mapping[str, Tensor]] | None = None
    export: Callable[[Any, Path, Path], None] | None = None
    has_own_tokens: bool = False
    bound_to: tuple[str, ...] = ()

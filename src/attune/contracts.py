"""What plug-ins provide: a task, a family, and the model that the two make together.

The loop, the search and the stages see no more of a plug-in than these protocols and records. A task says what to
learn and how it is scored; a family is a kind of pretrained model; `Family.build` joins them to a `TaskModel`.
"""

# B batch, F frames, D width
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast, runtime_checkable

from attune.errors import ConfigError
from attune.metrics import Json, Metric, Prediction, Scores
from attune.roles import Head as Head
from attune.roles import HeadTask as HeadTask
from attune.roles import HubTask as HubTask
from attune.roles import PromptedTask as PromptedTask
from attune.roles import TaskKind as TaskKind
from attune.roles import TextTask as TextTask
from attune.roles import TokenizedTask as TokenizedTask
from attune.roles import TunedTask as TunedTask
from attune.scorers import LanguageModel, ScorerKind
from attune.types import (
    Batch,
    FeatureCache,
    ImportedSearch,
    LoadedRow,
    Loss,
    Output,
    Scorer,
    ScoringContext,
    Target,
    Utterance,
    target_text,
)

if TYPE_CHECKING:  # recipes are read and listed without loading torch
    import torch
    from torch import Tensor, nn

ConfigT = TypeVar("ConfigT", contravariant=True)


class Section(Protocol):
    """A plug-in's settings in a recipe: a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


class ModelSection(Section, Protocol):
    """A family's settings in a recipe; `weights` is what a run starts from."""

    @property
    def weights(self) -> str | None:
        """A run, a model folder or a checkpoint of another toolkit, wherever it is."""


class Task(Protocol):
    """A task with what it prepared from the training data: targets, the head on an encoder, and scores."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The scores it has, the primary one first."""

    @property
    def scored_over(self) -> Literal["utterances", "set"]:
        """Whether counts of parts add up, or scores exist only for a whole set, such as EER over trial pairs."""

    @property
    def needs_audio(self) -> bool:
        """False: it is about text alone, and no audio is read."""

    def target(self, utterance: Utterance) -> Target:
        """What to learn from the utterance."""

    def reference(self, utterance: Utterance) -> Json:
        """What a prediction's value is compared with; None where scoring needs something else."""

    def frames_needed(self, target: Target) -> int:
        """The fewest encoder frames from which the target can be learned."""

    def read(self, output: Output) -> Json:
        """A search's output as a prediction's value; audio is written beside the predictions, and not read."""

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """What scoring this split needs beside the predictions: path or address by name, such as {"trials": …}.

        Asked before anything is decoded; a task that could not score says so here.
        """

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """The declared metrics of these predictions; NaN where nothing can be scored."""


class TaskType(Protocol[ConfigT]):
    """What `tasks/NAME.py` exports as TASK: a class whose instances are a `Task`.

    `prepare` learns what the task needs from the training utterances (vocabulary, label names) and writes it to
    `folder`; the constructor reads it back.
    """

    @property
    def Config(self) -> type[Section]:  # a class
        """Its settings in a recipe."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The scores it has, the primary one first."""

    @property
    def scored_over(self) -> Literal["utterances", "set"]:
        """Whether counts of parts add up, or scores exist only for a whole set."""

    def __call__(self, config: ConfigT, folder: Path) -> Task:
        """The task with what it prepared in `folder`."""

    def missing_field(self, config: ConfigT, utterance: Utterance) -> str | None:
        """The field that the utterance would need for this task and does not have, such as a text."""

    def prepare(self, config: ConfigT, utterances: Iterable[Utterance], folder: Path) -> None:
        """Learn from the training utterances and write to `folder`, once per run."""

    def can_reuse(self, config: ConfigT, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether what a pretrained model's task prepared in `folder` does for this config and these utterances."""


class SpeechModel(Protocol):
    """What the loop trains and the search decodes; an `nn.Module`."""

    training: bool

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

    def modules(self) -> Iterator[nn.Module]:
        """As `nn.Module` has it."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """As `nn.Module` has it."""

    def train(self, mode: bool = True) -> Self:
        """As `nn.Module` has it."""

    def eval(self) -> Self:
        """As `nn.Module` has it."""


@runtime_checkable
class HalfPrecisionModel(Protocol):
    """A model that decodes in half precision with some of it in float32; all others are cast whole."""

    def half_precision(self, dtype: torch.dtype) -> SpeechModel:
        """A model of the same weights that decodes in `dtype`."""


@runtime_checkable
class QuantizedModel(Protocol):
    """A model that decodes in int8 with more than its linear layers changed; of all others, those are."""

    def int8(self) -> SpeechModel:
        """A model of the same weights that decodes in int8 on the CPU."""


@runtime_checkable
class FusableModel(Protocol):
    """A model that a beam search of another model can fuse."""

    def language_model(self, first: int) -> LanguageModel:
        """Its predictions, token `first` of its own being token 0 of the searched model."""


@runtime_checkable
class EpochScheduledModel(Protocol):
    """A model whose loss depends on the epoch, such as CTC in the first ones only."""

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next training step, from 0; called before each of them."""


@runtime_checkable
class StepStatistics(Protocol):
    """A module with statistics of a whole step, which are summed over micro-batches and ranks as gradients are."""

    def begin_step(self) -> Tensor:
        """A leaf to whose gradient every backward adds what its micro-batch counts for."""

    @classmethod
    def settle(cls, modules: Sequence[Self], totals: Sequence[Tensor]) -> None:
        """Give all modules of this kind, in few operations, their sums over the step, after its weights are updated."""


class Codec(Protocol):
    """Utterances to what a model learns, and what a search found back to a prediction's value."""

    @property
    def pieces(self) -> Sequence[str]:
        """How each token is written, by id, an end as </s>; the last may be left out. Empty: no tokens are output."""

    def target(self, utterance: Utterance) -> Target:
        """What to learn from the utterance."""

    def frames_needed(self, target: Target) -> int:
        """The fewest encoder frames from which the target can be learned."""

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """The tokens that decoding starts from, which a batch has in place of targets; empty: none."""

    def read(self, output: Output) -> Json:
        """A search's output as a prediction's value; audio is written beside the predictions, and not read."""

    def join(self, values: Sequence[Json], whole: Utterance) -> Json:
        """The value of a long utterance from those of its chunks."""

    def describe(self, target: Target) -> str:
        """A target for people to read, with special tokens by name."""


@dataclass(frozen=True, slots=True)
class TaskCodec:
    """The task's own targets and readings, for families that add nothing to them."""

    task: Task
    pieces: Sequence[str] = ()

    def target(self, utterance: Utterance) -> Target:
        """The task's target."""
        return self.task.target(utterance)

    def frames_needed(self, target: Target) -> int:
        """What the task needs."""
        return self.task.frames_needed(target)

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """What the task's decoder starts from; nothing for most."""
        return self.task.prompt(utterance) if isinstance(self.task, PromptedTask) else ()

    def read(self, output: Output) -> Json:
        """As the task reads it."""
        return self.task.read(output)

    def join(self, values: Sequence[Json], whole: Utterance) -> Json:
        """Texts with a space between them."""
        return join_values(values)

    def describe(self, target: Target) -> str:
        """Token ids, or the shapes of its tensors."""
        return target_text(target)


def join_values(values: Sequence[Json]) -> str:
    """Texts with a space between them; what is no text cannot be joined."""
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise ConfigError("data.long_rows=split works for text only. Set data.long_rows=drop.")
    return " ".join(filter(None, texts))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model takes at once; longer recordings are cut in pauses."""

    max_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FrameTimes:
    """Hypotheses have a frame for each token."""

    seconds_per_frame: float


@dataclass(frozen=True, slots=True)
class TimestampTokens:
    """Hypotheses have tokens that are timestamps: `begin` is 0.00 s, and each token after it one step later."""

    begin: int
    step_seconds: float = 0.02


Times = FrameTimes | TimestampTokens
Pack = Callable[[Sequence[LoadedRow]], list[LoadedRow]]  # joins rows of a micro-batch, for training
DetectLanguages = Callable[[Scorer], list[str]]  # the language code of each row


@dataclass(frozen=True, slots=True)
class TaskModel:
    """A family's model for a task, and what belongs to it."""

    model: SpeechModel
    codec: Codec
    scorer: ScorerKind  # which search decodes it
    limits: Limits = Limits()
    times: Times | None = None
    detect_languages: DetectLanguages | None = None  # where none was given
    pack: Pack | None = None
    cache: FeatureCache | None = None

    @property
    def module(self) -> nn.Module:
        """The model as torch sees it."""
        return cast("nn.Module", self.model)


@dataclass(frozen=True, slots=True)
class ImportedCheckpoint:
    """Another toolkit's checkpoint: weights under the model's own names, and the recipe values it recommends."""

    tensors: Mapping[str, Tensor]
    overrides: tuple[str, ...] = ()  # task.language=be
    notes: tuple[str, ...] = ()  # what training from it should report
    search: ImportedSearch = ImportedSearch()


@dataclass(frozen=True, slots=True)
class Importer(Generic[ConfigT]):
    """Reads checkpoints of other toolkits, each once.

    `recognizes(path)`: whether it looks like one; `read(config, path, assets)` writes architecture and tokenizer there.
    `remote_parts(path)`: the addresses of what it has elsewhere, by the file name under which `read` finds each.
    """

    recognizes: Callable[[Path], bool]
    read: Callable[[ConfigT, Path, Path], ImportedCheckpoint]
    remote_parts: Callable[[Path], Mapping[str, str]] | None = None
    settings: tuple[str, ...] = ()  # recipe values of every imported model, such as task.name=language_model


@dataclass(frozen=True, slots=True)
class Exporters:
    """Writes models for other toolkits.

    `beside(model, assets, folder)` adds files to an exported model's folder, so that others can load it;
    `to_transformers(model, folder, to)` writes one as transformers has it.
    """

    beside: Callable[[SpeechModel, Path, Path], None] | None = None
    beside_has_weights: bool = False  # True: `beside` needs the model with its weights, not only its shape
    to_transformers: Callable[[SpeechModel, Path, Path], None] | None = None


@dataclass(frozen=True, slots=True)
class RemappedWeights:
    """Pretrained weights for a model with other tokens: which tensors are partly new, and what to report."""

    tensors: Mapping[str, Tensor]
    renewed: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class VocabularyRules(Generic[ConfigT]):
    """Whose tokens a model has: the task's, or its own.

    Where `is_own(config)`, the model learns a TextTask's text in its own tokens, and the task prepares nothing.
    `remap(model, tensors, task, assets)` moves pretrained rows to where the model has their tokens; `task` and
    `assets` are the folders of the pretrained model. Without it, rows of another vocabulary are never inherited.
    """

    is_own: Callable[[ConfigT], bool] = lambda config: False
    remap: Callable[[SpeechModel, Mapping[str, Tensor], Path, Path], RemappedWeights] | None = None


@dataclass(frozen=True, slots=True)
class Family(Generic[ConfigT]):
    """A kind of pretrained model. `families/NAME/__init__.py` exports one as FAMILY.

    `build(config, task, assets)` makes the model with random weights; `assets` is a folder with whatever else it must
    know. Weights are trained under the `architecture_settings`, imported ones under their defaults: an evaluation must
    keep them. `sources` are the settings that name files, wherever those are. `takes` says which tasks it can learn.
    LoRA adapts the layers of `lora_targets`: the first group of patterns that the model has.
    """

    config: type[Section]
    build: Callable[[ConfigT, Task, Path], TaskModel]
    importer: Importer[ConfigT] | None = None
    exporters: Exporters = Exporters()
    vocabulary: VocabularyRules[ConfigT] = field(default_factory=VocabularyRules)
    architecture_settings: tuple[str, ...] = ()
    sources: tuple[str, ...] = ("weights",)
    lora_targets: tuple[tuple[str, ...], ...] = (("q_proj", "v_proj"),)
    takes: TaskKind = "any"

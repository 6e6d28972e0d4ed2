"""The roles that a task may have besides being a task: what some families and stages ask of it.

Each is a protocol that is checked where it is needed; a task has as many of them as it likes.
"""

# B batch, F frames, D width
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

from attune.metrics import Prediction
from attune.scorers import ScorerKind
from attune.types import Batch, Loss, Output, Scorer, ScoringContext, Utterance

if TYPE_CHECKING:  # recipes are read and listed without loading torch
    from torch import Tensor

# HeadTask, TextTask, TextTask or TokenizedTask, the last two without audio, or its own
TaskKind = Literal["head", "text", "tokens", "written", "any"]


class Head(Protocol):
    """A task's module on top of an encoder; an `nn.Module`.

    Its last layer, whose rows belong to the task's tokens or labels, is called `output`: another vocabulary never
    inherits those rows.
    """

    scorer_kind: ScorerKind  # which of the scorers it makes

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """The summed loss of the encoder's frames (B, F, D) against the batch's targets."""

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Scorer:
        """What a search can search; the batch has the audio, for heads that filter it, and decoding's prompts."""


@runtime_checkable
class HeadTask(Protocol):
    """A task with a head, for families that are encoders."""

    def head(self, width: int, stride: int) -> Head:
        """A new module for encoder frames of this width, one every `stride` samples."""


@runtime_checkable
class PromptedTask(Protocol):
    """A task whose decoder starts from tokens of its own, such as a begin of sentence."""

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """The tokens that decoding starts from, and with which each target begins."""


@runtime_checkable
class TunedTask(Protocol):
    """A task with settings that are chosen on the dev sets once training is over, such as a threshold."""

    def tune(self, predictions: Sequence[Prediction], context: ScoringContext, folder: Path) -> None:
        """Choose the settings by the dev predictions and write them to the task's folder, on the first rank."""

    def read_tuning(self, folder: Path) -> None:
        """Use the settings that were written to the task's folder; a task made from that folder does already."""


@runtime_checkable
class TextTask(Protocol):
    """A task about text, for families that have their own vocabulary: what to learn, before it is tokenized."""

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

    def read(self, output: Output) -> str:
        """A hypothesis as text."""


@runtime_checkable
class HubTask(Protocol):
    """A task that the Hugging Face Hub has a name for, which goes into the model card."""

    pipeline_tag: ClassVar[str]  # such as automatic-speech-recognition

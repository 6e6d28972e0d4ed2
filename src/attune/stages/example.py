"""An utterance as the model will see it, shown before a run begins."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from attune.errors import DataError
from attune.stages.journal import RunLog
from attune.stages.pretrained import LoadedModel
from attune.types import SAMPLE_RATE, Hypothesis, Json, Utterance

SHOWN = 160  # characters of a target


@dataclass(frozen=True, slots=True)
class Example:
    """An utterance as the model will see it."""

    id: str
    reference: Json
    target: str  # as the codec describes it
    tokens: int | None  # where the target is tokens, how many
    reads: Json  # the text or label that the target stands for
    seconds: float
    frames: int
    frames_needed: int

    @property
    def target_line(self) -> str:
        """The target, not longer than a line; and how many tokens it has."""
        shown = self.target if len(self.target) <= SHOWN else f"{self.target[:SHOWN].rsplit(' ', 1)[0]} …"
        return shown if self.tokens is None else f"{shown} ({self.tokens} tokens)"


def first_example(utterances: Iterable[Utterance], assembled: LoadedModel) -> Example | None:
    """The first utterance that has a target."""
    for utterance in utterances:
        try:
            target = assembled.task_model.codec.target(utterance)
        except DataError:  # whoever trains on it, or looks at all of them, will say so
            continue
        return Example(
            id=utterance.id,
            reference=assembled.task.reference(utterance),
            target=assembled.task_model.codec.describe(target),
            tokens=len(target) if isinstance(target, tuple) else None,
            reads=read_back(utterance, assembled),
            seconds=utterance.seconds,
            frames=frames_of(utterance, assembled),
            frames_needed=assembled.task_model.codec.frames_needed(target),
        )
    return None


def log_first(utterances: Iterable[Utterance], assembled: LoadedModel, journal: RunLog) -> Example | None:
    """The first example, put down in the log too."""
    example = first_example(utterances, assembled)
    if example:
        journal.write("example", **asdict(example))
    return example


def read_back(utterance: Utterance, assembled: LoadedModel) -> str | None:
    """The value that the target of an utterance stands for, where targets are tokens."""
    codec = assembled.task_model.codec
    target = codec.target(utterance)
    return codec.read(Hypothesis(target, 0.0)) if isinstance(target, tuple) else None


def frames_of(utterance: Utterance, assembled: LoadedModel) -> int:
    """How many frames the encoder makes of an utterance."""
    frames: int = assembled.task_model.model.frames(round(utterance.seconds * SAMPLE_RATE))
    return frames

"""An utterance as the model will see it, shown before a run begins."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from attune.errors import DataError
from attune.stages.assemble import LoadedModel
from attune.stages.journal import RunLog
from attune.types import SAMPLE_RATE, Hypothesis, Json, Utterance

SHOWN_TOKENS = 30


@dataclass(frozen=True, slots=True)
class Example:
    """An utterance as the model will see it."""

    id: str
    reference: Json
    target: tuple[int, ...]
    reads: str  # the text or label that the target stands for
    seconds: float
    frames: int
    frames_needed: int
    written: str | None = None  # the target with all that is not text by name, where the family has such tokens

    @property
    def told_target(self) -> str:
        """The target as it is written, or its first tokens; and how many there are."""
        if self.written is not None:
            return f"{self.written} ({len(self.target)} tokens)"
        more = " …" if len(self.target) > SHOWN_TOKENS else ""
        return f"{' '.join(map(str, self.target[:SHOWN_TOKENS]))}{more} ({len(self.target)} in all)"


def first_example(utterances: Iterable[Utterance], assembled: LoadedModel) -> Example | None:
    """The first utterance that has a target."""
    for utterance in utterances:
        try:
            target = assembled.built.target(utterance)
        except DataError:  # whoever trains on it, or looks at all of them, will say so
            continue
        return Example(
            utterance.id,
            assembled.task.reference(utterance),
            target,
            read_back(utterance, assembled),
            utterance.seconds,
            frames_of(utterance, assembled),
            assembled.built.frames_needed(target),
            assembled.built.written(target) if assembled.built.written else None,
        )
    return None


def log_first(utterances: Iterable[Utterance], assembled: LoadedModel, journal: RunLog) -> Example | None:
    """The first example, put down in the log too."""
    example = first_example(utterances, assembled)
    if example:
        journal.write("example", **asdict(example))
    return example


def read_back(utterance: Utterance, assembled: LoadedModel) -> str:
    """What the target of an utterance says."""
    return assembled.built.read(Hypothesis(assembled.built.target(utterance), 0.0))


def frames_of(utterance: Utterance, assembled: LoadedModel) -> int:
    """How many frames the encoder makes of an utterance."""
    frames: int = assembled.built.model.frames(round(utterance.seconds * SAMPLE_RATE))
    return frames

"""Verify speakers: embeddings that tell speakers apart, scored over pairs of utterances (EER and minDCF).

Training learns to tell the training speakers apart; scoring compares the cosine of two embeddings with a threshold. A
trial list has lines of `1 ID ID` (one speaker) and `0 ID ID` (two), as VoxCeleb's; ids may end in a file's suffix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from attune.catalog import suggestion
from attune.contracts import TaskType
from attune.errors import DataError, ModelError
from attune.scoring.detection import EER, MIN_DCF, TARGET_PRIOR, score_trials
from attune.tasks._names import read_names, write_names
from attune.tasks.verify_speaker.settings import SpeakerHeadConfig as SpeakerHeadConfig
from attune.types import Embedding, Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance

if TYPE_CHECKING:
    from attune.tasks.verify_speaker.head import SpeakerHead

SPEAKERS = "speakers.json"
MOST_PAIRS = 50_000  # without a trial list
SEED = 17
DIGITS = 6  # of a value in the prediction file

Trial = tuple[bool, str, str]  # whether both are of one speaker, and the ids


@dataclass(frozen=True, slots=True)
class VerifySpeakerConfig:
    """Which pairs are compared, and what is on top of the encoder."""

    trials: Annotated[
        Mapping[str, str], Field(description="A trial list for each split; without one, pairs are drawn from it.")
    ] = field(default_factory=dict)
    head: SpeakerHeadConfig = field(default_factory=SpeakerHeadConfig)


class VerifySpeaker:
    """Whether two utterances are of one speaker."""

    Config: ClassVar[type[VerifySpeakerConfig]] = VerifySpeakerConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (EER, MIN_DCF)
    scored_over: ClassVar[Literal["utterances", "set"]] = "set"

    def __init__(self, config: VerifySpeakerConfig, folder: Path) -> None:
        self.config = config
        self.speakers = read_names(folder / SPEAKERS)
        self.ids = {name: number for number, name in enumerate(self.speakers)}

    @staticmethod
    def missing_field(config: VerifySpeakerConfig, utterance: Utterance) -> str | None:
        """A speaker."""
        return None if utterance.speaker else "speaker"

    @staticmethod
    def prepare(config: VerifySpeakerConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Collect the training speakers."""
        names = sorted({_speaker(utterance) for utterance in utterances})
        if len(names) < 2:
            raise DataError(f"Speaker verification needs at least two training speakers; found {len(names)}.")
        write_names(folder / SPEAKERS, names)

    @staticmethod
    def can_reuse(config: VerifySpeakerConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Whether `folder` has just the speakers of these utterances."""
        return read_names(folder / SPEAKERS) == sorted({_speaker(utterance) for utterance in utterances})

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The speaker's number."""
        name = _speaker(utterance)
        if name not in self.ids:
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has the speaker {name!r}, who is not in "
                f"the training set{suggestion(name, self.speakers)}"
            )
        return (self.ids[name],)

    def reference(self, utterance: Utterance) -> str:
        """The speaker."""
        return _speaker(utterance)

    def frames_needed(self, target: Target) -> int:
        """Any frame at all: short utterances are completed with silence."""
        return 1

    def head(self, width: int, stride: int) -> SpeakerHead:
        """An x-vector network with AM-softmax over the training speakers."""
        from attune.tasks.verify_speaker.head import SpeakerHead

        return SpeakerHead(width, len(self.speakers), self.config.head)

    def read(self, output: Output) -> list[float]:
        """The embedding, of length 1."""
        if not isinstance(output, Embedding):
            raise ModelError(f"Expected a model whose output is an embedding, found {type(output).__name__}.")
        return [round(value, DIGITS) for value in output.vector]

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """The split's trial list, if there is one."""
        return {"trials": self.config.trials[split]} if split in self.config.trials else {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """EER and minDCF over the trials of which both sides were predicted."""
        listed = context.files.get("trials")
        trials = trials_of(predictions, listed)
        found = scored_trials(predictions, trials)
        names = [f"{one} {other}" for (_, one, other), _ in found]
        values = score_trials([cosine for _, cosine in found], [trial[0] for trial, _ in found], names)
        counts = {
            "num_trials": len(found),
            "num_target_trials": sum(trial[0] for trial, _ in found),
            "num_absent_trials": len(trials) - len(found),
        }
        conditions = {"trials": "listed" if listed else "drawn", "target prior": f"{TARGET_PRIOR:g}"}
        return Scores(values, counts, conditions)


def trials_of(predictions: Sequence[Prediction], listed: Path | None) -> list[Trial]:
    """The trials of a list, or drawn ones."""
    known = {prediction.id for prediction in predictions}
    return list(_read_trials(listed, known)) if listed else draw_trials(predictions)


def scored_trials(predictions: Sequence[Prediction], trials: Sequence[Trial]) -> list[tuple[Trial, float]]:
    """The trials of which both sides were predicted, each with the cosine of its embeddings."""
    vectors = {each.id: np.array(each.value, np.float64) for each in predictions if not each.is_absent}
    found = [trial for trial in trials if trial[1] in vectors and trial[2] in vectors]
    return [(trial, _cosine(vectors[trial[1]], vectors[trial[2]])) for trial in found]


def draw_trials(predictions: Sequence[Prediction]) -> list[Trial]:
    """Every pair of utterances; of very many, as many of one speaker as of two where there are enough."""
    ordered = sorted(predictions, key=lambda each: each.id)
    if len(ordered) * (len(ordered) - 1) // 2 <= MOST_PAIRS:
        return [(one.reference == other.reference, one.id, other.id) for one, other in combinations(ordered, 2)]
    by_speaker: dict[object, list[Prediction]] = {}
    for each in ordered:
        by_speaker.setdefault(each.reference, []).append(each)
    several = [own for own in by_speaker.values() if len(own) > 1]
    random = np.random.default_rng(SEED)
    drawn: dict[tuple[str, str], Trial] = {}
    for draw in range(MOST_PAIRS):
        pool = several[int(random.integers(len(several)))] if several and draw % 2 else ordered
        one, other = (pool[place] for place in sorted(random.choice(len(pool), 2, replace=False)))
        drawn[one.id, other.id] = (one.reference == other.reference, one.id, other.id)
    return list(drawn.values())


def _read_trials(path: Path, known: set[str]) -> Iterator[Trial]:
    """The trials of a list; an id that the manifest does not have is an error."""
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 3 or fields[0] not in ("0", "1"):
            raise DataError(f"{path}:{number}: expected `1 ID ID` or `0 ID ID`, found {line!r}.")
        one, other = (name if name in known else name.rpartition(".")[0] for name in fields[1:])
        for name, written in ((one, fields[1]), (other, fields[2])):
            if name not in known:
                raise DataError(f"{path}:{number}: the scored set has no utterance {written!r}.")
        yield fields[0] == "1", one, other


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(one @ other) / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-12)


def _speaker(utterance: Utterance) -> str:
    if not utterance.speaker:
        raise DataError(f"{utterance.where}: utterance {utterance.id!r} has no speaker. Add `speaker` to the row.")
    return utterance.speaker


TASK: TaskType[VerifySpeakerConfig] = VerifySpeaker

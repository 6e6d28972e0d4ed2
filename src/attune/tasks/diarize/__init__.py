"""Diarize: who speaks when, for a fixed number of speakers, learned with permutation-invariant training; scored by DER.

Rows have `segments` (start, end, speaker). When training is over, the threshold on the probability of speech and the
length of the median filter over frames are chosen on the dev sets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from pydantic import Field

from attune.contracts import TaskType
from attune.errors import DataError, ModelError
from attune.files import write_text
from attune.scoring import bootstrap
from attune.scoring.diarization import DER, DiarizationErrors, Segment, diarization_errors
from attune.tasks.diarize.settings import ActivityHeadConfig as ActivityHeadConfig
from attune.types import Activity, Json, Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance

if TYPE_CHECKING:
    from attune.tasks.diarize.head import ActivityHead, SpeakerTurns

TUNED = "tuned.json"
MILLISECONDS, MICROSECONDS = 1_000, 1_000_000
LEVELS = 100  # of a probability in the prediction file
THRESHOLDS, MEDIANS = (0.3, 0.4, 0.5, 0.6, 0.7), (1, 11)


@dataclass(frozen=True, slots=True)
class DiarizeConfig:
    """How many speakers, and what is on top of the encoder."""

    speakers: Annotated[int, Field(ge=1, le=6, description="Maximum number of speakers in a recording.")] = 2
    collar: Annotated[
        float, Field(ge=0, description="Seconds before and after each reference boundary that are not scored.")
    ] = 0.0
    head: ActivityHeadConfig = field(default_factory=ActivityHeadConfig)


@dataclass(frozen=True, slots=True)
class Smoothing:
    """How probabilities become segments."""

    threshold: float = 0.5
    median: int = 11  # frames; 1: no filter


class Diarize:
    """The segments of each speaker."""

    Config: ClassVar[type[DiarizeConfig]] = DiarizeConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (DER,)
    scored_over: ClassVar[Literal["utterances", "set"]] = "utterances"

    def __init__(self, config: DiarizeConfig, folder: Path) -> None:
        self.config = config
        self.smoothing = Smoothing()
        self.read_tuning(folder)

    @staticmethod
    def missing_field(config: DiarizeConfig, utterance: Utterance) -> str | None:
        """Who speaks when."""
        return None if utterance.segments else "segments"

    @staticmethod
    def prepare(config: DiarizeConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Nothing."""

    @staticmethod
    def can_reuse(config: DiarizeConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Always: nothing was prepared."""
        return True

    def target(self, utterance: Utterance) -> SpeakerTurns:
        """The times of each speaker's segments."""
        from attune.tasks.diarize.head import speaker_turns

        names = sorted({each.speaker for each in utterance.segments})
        if len(names) > self.config.speakers:
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has {len(names)} speakers, but task.speakers is "
                f"{self.config.speakers}. Raise task.speakers, or remove the row."
            )
        return speaker_turns(utterance.segments, names)

    def reference(self, utterance: Utterance) -> list[Json]:
        """The segments as they are written."""
        return [{"start": each.start, "end": each.end, "speaker": each.speaker} for each in utterance.segments]

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int, stride: int) -> ActivityHead:
        """LSTM layers and a yes or no for each speaker and frame."""
        from attune.tasks.diarize.head import ActivityHead

        return ActivityHead(width, stride, self.config.speakers, self.config.head)

    def read(self, output: Output) -> Json:
        """Segments, and the probabilities they come from in hundredths."""
        if not isinstance(output, Activity):
            raise ModelError(f"Expected a model whose output is frame activity, found {type(output).__name__}.")
        levels = np.floor(output.frames.T * LEVELS).astype(int)  # (S, F)
        return {
            "segments": _segments(levels / LEVELS, output.seconds_per_frame, self.smoothing),
            "seconds_per_frame": output.seconds_per_frame,
            "activity": [" ".join(map(str, row)) for row in levels.tolist()],
        }

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """None."""
        return {}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """DER over all speech, with the seconds of each kind of error."""
        found = [each for each in predictions if not each.is_absent]
        errors = [self._errors(each) for each in found]
        counts = {
            f"{name}_ms": sum(round(MILLISECONDS * getattr(each, name)) for each in errors)
            for name in DiarizationErrors._fields
        }
        counts["num_absent"] = len(predictions) - len(found)
        der = bootstrap.percent(
            DER,
            [round(MICROSECONDS * each.total) for each in errors],
            [round(MICROSECONDS * each.speech) for each in errors],
        )
        settings = {"threshold": f"{self.smoothing.threshold:g}", "median": f"{self.smoothing.median} frames"}
        return Scores({"der": der}, counts, {"collar": f"{self.config.collar:g} s on each side", **settings})

    def tune(self, predictions: Sequence[Prediction], context: ScoringContext, folder: Path) -> None:
        """Choose threshold and median filter by the lowest DER of the dev predictions."""
        found = [each for each in predictions if isinstance(each.value, Mapping)]
        choices = [Smoothing(*each) for each in product(THRESHOLDS, MEDIANS)]
        best = min(choices, key=lambda choice: self._der(found, choice))
        write_text(folder / TUNED, json.dumps(asdict(best)) + "\n")

    def read_tuning(self, folder: Path) -> None:
        """Use the chosen threshold and filter, if any were."""
        if (folder / TUNED).is_file():
            self.smoothing = Smoothing(**json.loads((folder / TUNED).read_text(encoding="utf-8")))

    def _der(self, predictions: Sequence[Prediction], smoothing: Smoothing) -> float:
        errors = [
            diarization_errors(_triples(each.reference), _triples(_again(each.value, smoothing)), self.config.collar)
            for each in predictions
        ]
        return sum(each.total for each in errors) / max(sum(each.speech for each in errors), 1e-9)

    def _errors(self, prediction: Prediction) -> DiarizationErrors:
        value = prediction.value
        found = value["segments"] if isinstance(value, Mapping) else value
        return diarization_errors(_triples(prediction.reference), _triples(found), self.config.collar)


def median_filter(active: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    """What most of the `size` frames (an odd number) around each frame are; beyond the ends nothing is active."""
    if size == 1:
        return active
    padded = np.pad(active, size // 2)
    most: NDArray[np.bool_] = sliding_window_view(padded, size).sum(1) > size // 2
    return most


def _segments(probabilities: NDArray[np.float64], seconds_per_frame: float, smoothing: Smoothing) -> list[Json]:
    """The segments of every speaker from probabilities (S, F)."""
    found: list[Json] = []
    for speaker, row in enumerate(probabilities):
        active = median_filter(row >= smoothing.threshold, smoothing.median)
        edges = np.flatnonzero(np.diff(np.pad(active, 1).astype(int))).reshape(-1, 2)
        for start, end in (edges * seconds_per_frame).tolist():
            found.append({"start": round(start, 3), "end": round(end, 3), "speaker": str(speaker)})
    return found


def _again(value: Json, smoothing: Smoothing) -> Json:
    """The segments of a prediction under other settings."""
    if not isinstance(value, Mapping):
        return value
    rows = value["activity"]
    levels = [[int(level) for level in str(row).split()] for row in rows] if isinstance(rows, Sequence) else []
    step = value["seconds_per_frame"]
    return _segments(np.array(levels) / LEVELS, float(step) if isinstance(step, int | float) else 0.0, smoothing)


def _triples(segments: Json) -> list[Segment]:
    """Segments as they are scored; anything else is refused."""
    try:
        rows: Any = segments
        return [(float(each["start"]), float(each["end"]), str(each["speaker"])) for each in rows]
    except (TypeError, KeyError, ValueError) as error:
        raise DataError(f"Expected segments with start, end and speaker, found {str(segments)[:80]}.") from error


TASK: TaskType[DiarizeConfig] = Diarize

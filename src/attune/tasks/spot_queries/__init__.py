"""Spot queries: query-by-example search, which finds a recorded query in documents by time warping (MTWV).

Nothing is learned: the encoder's frames are compared as they are, so that one training step is enough to make a run.
Rows are queries or documents by a label. Which query is in which document is listed in lines of `QUERY DOCUMENT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from attune.contracts import TaskType
from attune.errors import ConfigError, DataError, ModelError
from attune.scoring import bootstrap
from attune.scoring.queries import BETA, MTWV, match, term_weighted_value
from attune.types import Metric, Output, Prediction, Scores, ScoringContext, Target, Utterance

if TYPE_CHECKING:
    from attune.tasks.spot_queries.head import FrameHead

QUERY, DOCUMENT = "query", "document"
SMALLEST = 1e-10


@dataclass(frozen=True, slots=True)
class SpotQueriesConfig:
    """Which rows are queries, and where they are to be found."""

    label: Annotated[str, Field(description="Label that marks a row as query or document.")] = "role"
    matches: Annotated[
        Mapping[str, str],
        Field(description="For each split, a file with lines `QUERY DOCUMENT`: which document contains which query."),
    ] = field(default_factory=dict)


class SpotQueries:
    """In which documents each query is."""

    Config: ClassVar[type[SpotQueriesConfig]] = SpotQueriesConfig
    needs_audio: ClassVar[bool] = True
    metrics: ClassVar[tuple[Metric, ...]] = (MTWV,)
    scored_over: ClassVar[Literal["utterances", "set"]] = "set"

    def __init__(self, config: SpotQueriesConfig, folder: Path) -> None:
        self.config = config

    @staticmethod
    def missing_field(config: SpotQueriesConfig, utterance: Utterance) -> str | None:
        """Whether it is a query."""
        return None if utterance.labels.get(config.label) in (QUERY, DOCUMENT) else config.label

    @staticmethod
    def prepare(config: SpotQueriesConfig, utterances: Iterable[Utterance], folder: Path) -> None:
        """Nothing."""

    @staticmethod
    def can_reuse(config: SpotQueriesConfig, folder: Path, utterances: Iterable[Utterance]) -> bool:
        """Always: nothing was prepared."""
        return True

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """Nothing."""
        return ()

    def reference(self, utterance: Utterance) -> str:
        """Query or document."""
        role = utterance.labels.get(self.config.label)
        if role not in (QUERY, DOCUMENT):
            raise DataError(
                f"{utterance.where}: utterance {utterance.id!r} has no label {self.config.label!r} with "
                "query or document. Add it to the row."
            )
        return role

    def frames_needed(self, target: Target) -> int:
        """Any frame at all."""
        return 1

    def head(self, width: int, stride: int) -> FrameHead:
        """The frames as they are."""
        from attune.tasks.spot_queries.head import FrameHead

        return FrameHead()

    def read(self, output: Output) -> None:
        """Frames are written beside the predictions."""
        raise ModelError("Features are written to files; they have no JSON value.")

    def scoring_files(self, split: str) -> Mapping[str, str]:
        """The split's list of matches."""
        if split not in self.config.matches:
            raise ConfigError(f"task.matches: no list for {split}. Name a file with lines of `QUERY DOCUMENT`.")
        return {"matches": self.config.matches[split]}

    def score(self, predictions: Sequence[Prediction], context: ScoringContext) -> Scores:
        """MTWV over all pairs of a query and a document."""
        found = sorted((each for each in predictions if not each.is_absent), key=lambda each: each.id)
        frames = _standardized([_read_frames(context.folder / str(each.file)) for each in found])
        rows = list(zip(found, frames, strict=True))
        queries = [(each.id, own) for each, own in rows if each.reference == QUERY]
        documents = [(each.id, own) for each, own in rows if each.reference == DOCUMENT]
        wanted = _read_matches(context.files["matches"])
        counts = {
            "num_queries": len(queries),
            "num_documents": len(documents),
            "num_absent": len(predictions) - len(found),
        }
        if not queries or not documents:
            return Scores({MTWV.name: bootstrap.statistic(MTWV, lambda rows: 0.0, ())}, counts)
        scores = np.stack([match(own, [frames for _, frames in documents]) for _, own in queries])  # (Q, documents)
        is_match = np.array([[(query, document) in wanted for document, _ in documents] for query, _ in queries])
        names = [query for query, _ in queries]
        _, threshold = _value(scores, is_match, np.arange(len(names)))
        mtwv = bootstrap.statistic(MTWV, lambda chosen: _value(scores, is_match, chosen)[0], names)
        return Scores({MTWV.name: mtwv}, counts, {"threshold": f"{threshold:.2f}", "beta": f"{BETA:.2f}"})


def _value(scores: NDArray[np.float64], is_match: NDArray[np.bool_], chosen: NDArray[np.int64]) -> tuple[float, float]:
    """The maximum and its threshold for the chosen queries, which may repeat."""
    queries = np.repeat(np.arange(len(chosen)), scores.shape[1])
    return term_weighted_value(scores[chosen].ravel(), is_match[chosen].ravel(), queries)


def _standardized(frames: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Every dimension with mean 0 and deviation 1 over all queries and documents."""
    if not frames:
        return []
    count = sum(map(len, frames))
    mean = sum(each.sum(0) for each in frames) / count
    deviation = np.sqrt(sum(((each - mean) ** 2).sum(0) for each in frames) / count)
    return [(each - mean) / np.maximum(deviation, SMALLEST) for each in frames]


def _read_frames(path: Path) -> NDArray[np.float64]:
    try:
        return np.asarray(np.load(path, allow_pickle=False), np.float64)
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read {path}: {error}. Run `attune evaluate` again.") from error


def _read_matches(path: Path) -> set[tuple[str, str]]:
    pairs = set()
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        fields = line.split()
        if fields and len(fields) != 2:
            raise DataError(f"{path}:{number}: expected `QUERY DOCUMENT`, found {line!r}.")
        if fields:
            pairs.add((fields[0], fields[1]))
    return pairs


TASK: TaskType[SpotQueriesConfig] = SpotQueries

"""TensorBoard: an event file in the run's folder, with texts and audio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attune.report.trackers import Sample, TrackedRun, TrackerType

if TYPE_CHECKING:
    from attune.report.board import Board


class TensorBoard:
    """Figures, sample transcripts and their audio in `tensorboard/`."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Figures by name."""
        self._board.add(step, **values)

    def samples(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table of texts, and a player for each recording."""
        self._board.add_text(step, f"{split}/samples", table(samples))
        for each in samples:
            if each.audio is not None:
                self._board.add_audio(step, f"{split}/{each.id}", each.audio)

    def close(self) -> None:
        """Nothing is kept open."""


def table(samples: Sequence[Sample]) -> str:
    """Samples as a table in Markdown; what would be markup in it is text."""
    rows = [f"| {_cell(each.id)} | {_cell(each.reference)} | {_cell(each.hypothesis)} |" for each in samples]
    return "\n".join(["| id | reference | hypothesis |", "|---|---|---|", *rows])


def _cell(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return " ".join(escaped.split())


def _open(run: TrackedRun) -> TensorBoard:
    from attune.report.board import Board

    return TensorBoard(Board(run.folder / "tensorboard"))


TRACKER = TrackerType("tensorboard", _open)

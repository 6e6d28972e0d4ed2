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
        self._has_audio: set[str] = set()

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Figures by name."""
        self._board.add(step, **values)

    def samples(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table of texts, and once a player for each recording, as encoding takes longer than scoring."""
        self._board.add_text(step, f"{split}/samples", table(samples))
        for each in samples:
            name = f"{split}/{each.id}"
            if each.audio is not None and name not in self._has_audio:
                self._board.add_audio(step, name, each.audio)
                self._has_audio.add(name)

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

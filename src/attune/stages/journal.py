"""What a run writes down while it goes: log.jsonl always, TensorBoard when it is installed."""

import importlib.util
from typing import Any

from attune.run import Run


class RunLog:
    """The first rank's log. Other ranks have none."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._board: Any = None
        if importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run.folder / "tensorboard"))

    def write(self, kind: str, **values: object) -> None:
        """A line for log.jsonl."""
        self.run.log(kind, **values)

    def plot(self, step: int, **values: float) -> None:
        """Figures for TensorBoard."""
        if self._board:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Let go of the files."""
        if self._board:
            self._board.close()

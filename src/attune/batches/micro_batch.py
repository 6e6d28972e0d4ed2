"""A micro-batch: where it is in the plan, its rows, and what a worker made of them."""

from dataclasses import dataclass, replace

from attune.batches.plan import Rows
from attune.errors import AttuneError
from attune.types import Batch, Utterance


@dataclass(frozen=True, slots=True)
class Position:
    """Optimizer steps taken so far, and where that is in the plan.

    In a stream every block has a plan of its own: `step_in_epoch` counts in the block, which begins at `byte` of the
    epoch's `shard`, and `epoch_seconds` is the audio of the epoch so far.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    block: int = 0
    shard: int = 0
    byte: int = 0
    epoch_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A row that could not be used, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class MicroBatchPlan:
    """One slot of one step, by row numbers: what a loader worker receives. A stream has no rows to look up."""

    position: Position  # after this step
    slot: int
    rows: Rows
    utterances: tuple[Utterance, ...] | None = None
    dropped: tuple[DroppedRow, ...] = ()  # before anything was read


@dataclass(frozen=True, slots=True)
class LoadedMicroBatch:
    """A micro-batch as a worker returns it. No batch: the slot is empty, or every row in it was bad."""

    micro: MicroBatchPlan
    batch: Batch | None
    dropped: tuple[DroppedRow, ...] = ()
    error: AttuneError | None = None  # raised in the parent, where it keeps its message

    def pin_memory(self) -> "LoadedMicroBatch":
        """The same in memory that a device can read while it computes; a loader calls this in a thread of its own."""
        return replace(self, batch=self.batch.pin_memory()) if self.batch else self

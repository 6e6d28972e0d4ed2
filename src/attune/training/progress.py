"""How far training has come, apart from the loop: whoever only reads checkpoints does not load what trains."""

from dataclasses import dataclass

from attune.batches.micro_batch import Position
from attune.training.precision import LossScale


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """What training has come to, beside weights and optimizer: all of it goes into the checkpoint."""

    position: Position = Position()
    scale: LossScale = LossScale()
    skipped: int = 0
    skipped_in_a_row: int = 0

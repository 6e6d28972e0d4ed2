"""What conversions to other runtimes are compared on, and what is reported of it."""

from dataclasses import dataclass

import numpy as np

from attune.batches.collate import collate
from attune.contracts import TaskModel
from attune.types import SAMPLE_RATE, Batch, LoadedRow, Utterance

SECONDS = (1.5, 4.0, 9.0)  # of the samples that are compared


@dataclass(frozen=True, slots=True)
class ConversionCheck:
    """What was compared, and by how much what the encoder makes of it differs at the most."""

    samples: int
    largest_difference: float


def synthetic_batch(model: TaskModel) -> Batch:
    """Noise that rises and falls as syllables do, the same each time."""
    draws = np.random.default_rng(0)
    rows = []
    for index, seconds in enumerate(SECONDS):
        times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
        loudness = 0.1 * np.square(np.sin(2 * np.pi * (2 + index) * times))
        samples = (loudness * draws.standard_normal(len(times))).astype(np.float32)
        rows.append(LoadedRow(str(index), samples, model.codec.prompt(Utterance(str(index), seconds))))
    return collate(rows)

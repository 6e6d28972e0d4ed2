"""Silence taken out of recordings, as sox does it: `silence 1 0.1 0.1% -1 0.1 0.1%`."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from attune.audio.decode import Samples
from attune.types import SAMPLE_RATE

WINDOW_SECONDS = 0.02  # of the level
LASTING_SECONDS = 0.1  # of silence that goes, and of sound that ends it
STEP = 2.0**-15  # levels are compared in steps of 16 bits


def remove_silence(samples: Samples, threshold: float = 0.001, rate: int = SAMPLE_RATE) -> Samples:
    """The samples without stretches of 0.1 s or more whose RMS level is at or below `threshold` of full scale.

    Sounds shorter than 0.1 s between such stretches go with them.
    """
    is_loud = np.floor(_levels(samples, round(rate * WINDOW_SECONDS)) / STEP) * STEP > threshold
    kept, is_copying = [samples[:0]], False
    for start, end in pairwise([0, *(np.flatnonzero(np.diff(is_loud)) + 1), len(samples)]):
        if end - start >= rate * LASTING_SECONDS:
            is_copying = bool(is_loud[start])
        if is_copying:
            kept.append(samples[start:end])
    return np.concatenate(kept)


def _levels(samples: Samples, window: int) -> npt.NDArray[np.float64]:
    """The RMS level of the window that ends with each sample; zeros come before the first."""
    energy = np.concatenate([np.zeros(window), np.cumsum(np.square(samples, dtype=np.float64))])
    energy[window:] -= energy[:-window].copy()
    levels: npt.NDArray[np.float64] = np.sqrt(np.maximum(energy[window:], 0) / window)
    return levels

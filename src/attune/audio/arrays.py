"""Arrays as recordings: floats from -1 to 1 or integers as they were recorded, one channel or several."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError

INTEGERS = (np.int8, np.int16, np.int32)  # of wider ones, nobody knows what is loud


def as_mono(array: NDArray[Any]) -> NDArray[np.float32]:
    """Samples from -1 to 1, one channel; what is no recording is refused."""
    samples = _as_floats(array)
    if samples.ndim == 2:
        samples = _mono(samples)
    if samples.ndim != 1 or not samples.size or not np.isfinite(samples).all():
        raise DataError(
            f"An array of shape {samples.shape} is not a recording. Expected (samples,) or (channels, samples), not "
            "empty, all samples finite."
        )
    return samples


def _as_floats(array: NDArray[Any]) -> NDArray[np.float32]:
    """Samples from -1 to 1; integers are parts of the loudest that their type has room for."""
    if array.dtype.kind == "f":
        return array.astype(np.float32, copy=False)
    if array.dtype in INTEGERS:
        return array.astype(np.float32) / -np.float32(np.iinfo(array.dtype).min)
    raise DataError(
        f"An array of {array.dtype} is not a recording. Expected floats from -1 to 1, or signed integers of 8, 16 "
        "or 32 bits."
    )


def _mono(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of the channels, which come first."""
    if array.shape[0] > array.shape[1]:
        raise DataError(f"An array of shape {array.shape} looks like (samples, channels): transpose it.")
    mean: NDArray[np.float32] = array.mean(0)
    return mean

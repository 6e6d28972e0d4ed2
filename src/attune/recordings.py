"""Recordings as people have them, paths, URLs and arrays, to the samples that models take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attune.audio.decode import read_audio, resample
from attune.errors import DataError
from attune.site import this_site
from attune.sources import locate
from attune.types import SAMPLE_RATE, Utterance

Audio = str | Path | ArrayLike | Mapping[str, Any]  # a mapping as HF datasets have it: array and sampling_rate
INTEGERS = (np.int8, np.int16, np.int32)  # of wider ones, nobody knows what is loud
LOUDEST = 100.0  # clipped or boosted audio is over 1, not over this


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of a recording before it is transcribed, for models that can use it."""

    language: str | None = None  # None: the recipe's, or detected
    prompt: str | None = None  # the text before the recording, or names as they are written
    translate: bool = False  # to English
    phrases: tuple[str, ...] = ()  # names and terms to expect, besides the recipe's; they need a beam search

    def as_utterance(self, seconds: float = 0.0) -> Utterance:
        """What a codec makes a decoder's prompt of, and joins texts by."""
        labels = {"prompt": self.prompt} if self.prompt else {}
        task = {"speech_task": "translate"} if self.translate else {}
        return Utterance("", seconds, language=self.language, labels=labels | task, phrases=self.phrases)


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """What is decoded at once, and where it begins in its recording."""

    samples: NDArray[np.float32]
    start: float = 0.0  # seconds
    hints: Hints = Hints()

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / SAMPLE_RATE


def load_audio(source: str | Path, rate: int = SAMPLE_RATE) -> NDArray[np.float32]:
    """The samples of a recording, mono, at `rate`; `source` is a path or a URL."""
    return read_audio(locate(str(source), this_site().cache), rate=rate)


def as_samples(audio: Audio, rate: int) -> NDArray[np.float32]:
    """One recording as mono samples at the models' rate."""
    if isinstance(audio, str | Path):
        return load_audio(audio)
    if isinstance(audio, Mapping) and {"array", "sampling_rate"} <= audio.keys():
        return as_samples(audio["array"], audio["sampling_rate"])
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not 0 < rate < math.inf:
        raise DataError(f"rate: expected samples per second, above 0; found {rate!r}.")
    array = np.asarray(audio)
    if array.dtype.kind in "OS":  # objects and bytes
        raise DataError(
            f"A value of type {type(audio).__name__} is not a recording. Expected a path, a URL, samples (an array, a "
            "tensor or numbers; with rate=…), array and sampling_rate in a dict, or a list of these."
        )
    array = _as_floats(array)
    if array.ndim == 2:
        array = _mono(array)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise DataError(
            f"An array of shape {array.shape} is not a recording. Expected (samples,) or (channels, samples), not "
            "empty, all samples finite."
        )
    if np.abs(array).max() > LOUDEST:
        raise DataError(
            f"An array with floats up to {np.abs(array).max():.0f} is not a recording. Expected floats from -1 to 1: "
            "divide 16-bit samples by 32768, or pass them as integers."
        )
    samples = resample(array, rate, SAMPLE_RATE)
    if not samples.size:
        raise DataError(f"An array of shape {array.shape} at {rate} Hz is too short for a recording.")
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

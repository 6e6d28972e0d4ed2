"""Sounds for a page: a few recordings as Opus with the outline of their waveform, and how noisy some of them are."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from attune.audio.decode import read_audio, read_utterance
from attune.errors import AttuneError
from attune.metrics import Json
from attune.sources import content_of
from attune.types import SAMPLE_RATE, Utterance

PEAKS = 240  # columns of a waveform
LONGEST = 60.0  # seconds that are put into a page
FRAME = SAMPLE_RATE // 50
COMPRESSION = 0.93  # of libsndfile: about 24 kbit/s


def sound_of(utterance: Utterance) -> Json:
    """A recording for the page; None where it cannot be read: a report does not fail for it."""
    try:
        samples = _beginning(utterance)
    except (AttuneError, OSError):
        return None
    return sound(samples)


def _beginning(utterance: Utterance) -> NDArray[np.float32]:
    """As much of a recording as a page has: one of hours is not read for a minute of it."""
    if utterance.seconds > LONGEST:
        utterance = replace(utterance, start=utterance.start or 0.0, seconds=LONGEST)
    return read_utterance(utterance, content=content_of(utterance))


def sound_of_file(path: Path) -> Json:
    """A recording that a model made."""
    try:
        return sound(read_audio(path))
    except (AttuneError, OSError):
        return None


def sound(samples: NDArray[np.float32]) -> Json:
    """Samples as Opus, and the peaks of their waveform as bytes."""
    shown = samples[: int(LONGEST * SAMPLE_RATE)]
    return {"opus": base64.b64encode(opus(shown)).decode(), "peaks": base64.b64encode(peaks(shown)).decode()}


def opus(samples: NDArray[np.float32]) -> bytes:
    """An Ogg Opus file."""
    file = io.BytesIO()
    soundfile.write(
        file, np.clip(samples, -1, 1), SAMPLE_RATE, format="OGG", subtype="OPUS", compression_level=COMPRESSION
    )
    return file.getvalue()


def peaks(samples: NDArray[np.float32]) -> bytes:
    """The loudest sample of each of `PEAKS` parts, as a part of the loudest of all."""
    edges = np.linspace(0, len(samples), PEAKS + 1).astype(np.int64)[:-1]
    highest = np.maximum.reduceat(np.abs(samples), np.minimum(edges, max(0, len(samples) - 1)))
    return bytes((255 * highest / max(float(highest.max()), 1e-9)).astype(np.uint8))


def snr_of(utterance: Utterance) -> float | None:
    """The manifest's `snr` in dB, or None where it has none."""
    try:
        value = float(utterance.labels["snr"])
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) else None


def estimated_snrs(utterances: Iterable[Utterance]) -> Mapping[str, float]:
    """How far loud frames are above quiet ones in dB, by id: a rough estimate of the signal-to-noise ratio.

    Of a long recording its first minute is looked at.
    """
    found = {}
    for utterance in utterances:
        try:
            samples = _beginning(utterance)
        except (AttuneError, OSError):
            continue
        if len(samples) >= 10 * FRAME:
            found[utterance.id] = estimate_snr(samples)
    return found


def estimate_snr(samples: NDArray[np.float32]) -> float:
    """The power of the loudest tenth of the frames over that of the quietest tenth, in dB."""
    whole = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    powers = np.sort((whole**2).mean(axis=1)) + 1e-10
    tenth = max(1, len(powers) // 10)
    noise, speech = powers[:tenth].mean(), powers[-tenth:].mean()
    return round(10 * math.log10(max(speech - noise, 1e-10) / noise), 1)

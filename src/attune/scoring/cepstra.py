"""Mel-cepstral distortion between two recordings of one sentence, as in voice conversion."""

# F frames, K frequencies, M coefficients
from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Metric
from attune.scoring.dtw import align

MCD = Metric("mcd", "dB", False, "Mel-cepstral distortion with c0, after time alignment, mean over utterances.")
ORDER = 39
LOUD_DB = -20.0  # frames that are quieter than the mean power by more than this are not compared, as in SUPERB's scorer
WARP = {16_000: 0.42, 22_050: 0.455, 24_000: 0.466, 44_100: 0.544, 48_000: 0.554}  # of the mel scale, by rate

Frames = NDArray[np.float64]


def mel_cepstrum(power: Frames, warp: float, order: int = ORDER) -> Frames:
    """Mel-cepstra (F, order + 1) of smooth power spectra (F, K)."""
    cepstrum = np.fft.irfft(np.log(power), axis=1)  # (F, 2K - 2)
    cepstrum = cepstrum[:, : power.shape[1]].copy()
    cepstrum[:, 0] /= 2
    return frequency_transform(cepstrum, warp, order)


def frequency_transform(cepstrum: Frames, warp: float, order: int) -> Frames:
    """Oppenheim's recursion: the cepstrum on a frequency axis that an all-pass filter has bent by `warp`."""
    return cepstrum @ _transform(cepstrum.shape[1], warp, order)


@cache
def _transform(size: int, warp: float, order: int) -> Frames:
    """The recursion as a matrix (size, order + 1): what it makes of each coefficient alone."""
    out = np.zeros((size, order + 1))
    for column in range(size - 1, -1, -1):
        before = out.copy()
        out[:, 0] = warp * before[:, 0]
        out[column, 0] += 1
        out[:, 1] = (1 - warp**2) * before[:, 0] + warp * before[:, 1]
        for place in range(2, order + 1):
            out[:, place] = before[:, place - 1] + warp * (before[:, place] - out[:, place - 1])
    return out


def mel_cepstral_distortion(reference: Frames, estimate: Frames) -> float:
    """In dB, of mel-cepstra (F, M) aligned in time by their own distances."""
    distances = np.sqrt(((reference[:, None] - estimate[None]) ** 2).sum(2))
    rows, columns = align(distances)
    return 10 / math.log(10) * math.sqrt(2) * float(distances[rows, columns].mean())


def loud_frames(power: Frames) -> NDArray[np.bool_]:
    """Which frames (F, K) are loud enough to be compared."""
    powers = np.maximum(2 * power.sum(1) - power[:, 0] - power[:, -1], 1e-12)  # of the whole, mirrored spectrum
    loud: NDArray[np.bool_] = powers > powers.mean() * 10 ** (LOUD_DB / 10)
    return loud

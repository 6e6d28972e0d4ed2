"""Short-time objective intelligibility (Taal et al., 2011), with the resampling of its Matlab and Octave versions."""

# T samples, F frames, N samples of a frame, K third-octave bands, L frames of a segment
from __future__ import annotations

from math import gcd

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

RATE = 10_000
FRAME, HOP, TRANSFORM = 256, 128, 512
BANDS, LOWEST_HERTZ = 15, 150.0
SEGMENT = 30  # frames, 384 ms
CLIP = 10 ** (15 / 20)  # a lower bound of -15 dB of the signal-to-distortion ratio
DYNAMIC_RANGE = 40.0  # dB; frames that are quieter than the loudest by more than this are silence
EPSILON = np.finfo(np.float64).eps
TOO_SHORT = 1e-5  # the value for less than one segment of speech, as in other implementations

Signal = NDArray[np.float64]


def stoi(reference: Signal, estimate: Signal, rate: int) -> float:
    """Between 0 and 1, where 1 is as intelligible as the reference."""
    clean, processed = (resample(each, rate) for each in (reference, estimate))
    clean, processed = _without_silence(clean, processed)
    bands = _third_octaves()
    one, other = (np.sqrt(bands @ np.abs(_spectrum(each).T) ** 2) for each in (clean, processed))  # (K, F)
    if one.shape[1] < SEGMENT:
        return TOO_SHORT
    wanted, found = (sliding_window_view(each, SEGMENT, axis=1) for each in (one, other))  # (K, segments, L)
    scale = np.linalg.norm(wanted, axis=2, keepdims=True) / (np.linalg.norm(found, axis=2, keepdims=True) + EPSILON)
    found = np.minimum(found * scale, wanted * (1 + CLIP))
    return float((_standardized(wanted) * _standardized(found)).sum(2).mean())


def resample(samples: Signal, rate: int) -> Signal:
    """At 10 kHz, by a polyphase filter with a Kaiser window."""
    if rate == RATE:
        return samples
    up, down = RATE // gcd(RATE, rate), rate // gcd(RATE, rate)
    response = _low_pass(up, down)
    half = len(response) // 2
    spread = np.zeros((len(samples) - 1) * up + 1)
    spread[::up] = samples
    size = -(-len(samples) * up // down)
    full = np.concatenate([_convolve(spread, response)[half:], np.zeros(down)])
    return full[: size * down : down]


def _low_pass(up: int, down: int) -> Signal:
    stopband_db, cutoff = 60.0, 1 / (2 * max(up, down))
    half = int(np.ceil((stopband_db - 8) / (28.714 * cutoff / 10)))
    beta = 0.1102 * (stopband_db - 8.7)
    times = np.arange(-half, half + 1)
    ideal = 2 * up * cutoff * np.sinc(2 * cutoff * times)
    response: Signal = np.kaiser(2 * half + 1, beta) * ideal
    response *= up / response.sum()
    return response


def _convolve(one: Signal, other: Signal) -> Signal:
    size = len(one) + len(other) - 1
    product = np.fft.rfft(one, size) * np.fft.rfft(other, size)
    return np.fft.irfft(product, size)


def _window() -> Signal:
    return np.hanning(FRAME + 2)[1:-1]


def _frames(samples: Signal) -> Signal:
    if len(samples) <= FRAME:
        return np.zeros((0, FRAME))
    return sliding_window_view(samples, FRAME)[:-1:HOP] * _window()  # the published code leaves out the very last


def _spectrum(samples: Signal) -> NDArray[np.complex128]:
    return np.fft.rfft(_frames(samples), TRANSFORM)


def _without_silence(clean: Signal, processed: Signal) -> tuple[Signal, Signal]:
    """Both signals without the frames in which the clean one is silent."""
    size = min(len(clean), len(processed))
    one, other = _frames(clean[:size]), _frames(processed[:size])
    if not len(one):
        return clean[:0], processed[:0]
    energies = 20 * np.log10(np.linalg.norm(one, axis=1) + EPSILON)
    loud = energies > energies.max() - DYNAMIC_RANGE
    return _overlap_add(one[loud]), _overlap_add(other[loud])


def _overlap_add(frames: Signal) -> Signal:
    summed = np.zeros((len(frames) - 1) * HOP + FRAME)
    for place, frame in enumerate(frames):
        summed[place * HOP : place * HOP + FRAME] += frame
    return summed


def _third_octaves() -> Signal:
    hertz = np.linspace(0, RATE, TRANSFORM + 1)[: TRANSFORM // 2 + 1]
    bands = np.zeros((BANDS, len(hertz)))
    for band in range(BANDS):
        low, high = (LOWEST_HERTZ * 2 ** ((2 * band + side) / 6) for side in (-1, 1))
        bands[band, np.argmin((hertz - low) ** 2) : np.argmin((hertz - high) ** 2)] = 1
    return bands


def _standardized(segments: Signal) -> Signal:
    centered = segments - segments.mean(2, keepdims=True)
    found: Signal = centered / (np.linalg.norm(centered, axis=2, keepdims=True) + EPSILON)
    return found

"""Sounds in a page: the same speech in a tenth of the bytes, and a noise estimate that orders recordings rightly."""

import io

import numpy as np
import soundfile

from attune.report.sounds import PEAKS, estimate_snr, opus, peaks
from attune.testing.data import speak


def test_opus_is_small_and_has_the_length_and_level_of_the_recording():
    samples = speak("seven three")
    encoded = opus(samples)
    decoded, rate = soundfile.read(io.BytesIO(encoded))
    assert len(encoded) < 2 * len(samples) / 5
    assert abs(len(decoded) / rate - len(samples) / 16000) < 0.05
    assert 0.7 < np.abs(decoded).max() / np.abs(samples).max() < 1.4


def test_peaks_follow_the_waveform():
    found = peaks(np.concatenate([np.zeros(8000), np.full(8000, 0.5)]).astype(np.float32))
    assert len(found) == PEAKS and found[0] == 0 and found[-1] == 255
    assert len(peaks(np.ones(3, np.float32))) == PEAKS


def test_louder_noise_is_a_lower_ratio():
    clean, noise = speak("seven three nine"), np.random.default_rng(1).normal(0, 1, 100_000)
    ratios = [estimate_snr((clean + level * noise[: len(clean)]).astype(np.float32)) for level in (0.0, 0.02, 0.2)]
    assert ratios[0] > ratios[1] > ratios[2]

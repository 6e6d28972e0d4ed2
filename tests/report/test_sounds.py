"""Sounds in a page: the same speech in a tenth of the bytes, and a noise estimate that orders recordings rightly."""

import base64
import io
from dataclasses import replace

import numpy as np
import soundfile

from attune.report.sounds import PEAKS, estimate_snr, estimated_snrs, opus, peaks, sound_of
from attune.testing.data import speak
from attune.types import Utterance


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


def test_of_a_long_recording_the_beginning_is_read(tmp_path):
    """What comes after it is damaged, which nobody would notice who does not read it."""
    samples = np.random.default_rng(1).normal(0, 0.1, 90 * 16_000).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", np.concatenate([samples, [np.nan]]), 16_000, subtype="FLOAT")
    whole = Utterance("a", len(samples) / 16_000, tmp_path / "a.wav")
    later = replace(whole, id="b", start=20.0, seconds=65.0)
    for utterance, start in ((whole, 0), (later, 20)):
        own = samples[start * 16_000 :][: 60 * 16_000]
        assert sound_of(utterance)["peaks"] == base64.b64encode(peaks(own)).decode()
        assert estimated_snrs([utterance]) == {utterance.id: estimate_snr(own)}

import shutil
import subprocess

import numpy as np
import pytest
import soundfile

from attune.audio.silence import remove_silence


def noise(seconds, level, seed=0):
    return (level * np.random.default_rng(seed).standard_normal(round(seconds * 16000))).astype(np.float32)


def test_lasting_silence_goes_and_short_pauses_stay():
    loud, pause = noise(0.5, 0.1), noise(0.05, 0)
    trimmed = remove_silence(np.concatenate([noise(1, 0), loud, pause, loud, noise(1, 0), loud]))
    # The level's window of 20 ms lets go of a sound that much later.
    assert abs(len(trimmed) / 16000 - (0.5 + 0.05 + 0.5 + 0.5 + 0.02)) < 0.002
    np.testing.assert_array_equal(remove_silence(loud), loud[1:])  # whose first sample alone is not loud yet


def test_a_click_in_silence_goes_with_it():
    assert len(remove_silence(np.concatenate([noise(1, 0), noise(0.05, 0.5), noise(1, 0)]))) == 0
    assert len(remove_silence(np.zeros(0, np.float32))) == 0


@pytest.mark.skipif(shutil.which("sox") is None, reason="sox is not installed")
def test_the_same_samples_as_sox(tmp_path):
    generator = np.random.default_rng(3)
    for case in range(20):
        levels = generator.choice([0, 0.0003, 0.0008, 0.0013, 0.1], 6)
        parts = [noise(generator.uniform(0.02, 0.4), level, seed) for seed, level in enumerate(levels)]
        soundfile.write(tmp_path / "in.wav", np.concatenate(parts).clip(-1, 0.99), 16000, subtype="PCM_16")
        effect = ["silence", "1", "0.1", "0.1%", "-1", "0.1", "0.1%"]
        subprocess.run(["sox", "-D", tmp_path / "in.wav", tmp_path / "out.wav", *effect], check=True)
        trimmed = remove_silence(soundfile.read(tmp_path / "in.wav", dtype="float32")[0])
        np.testing.assert_array_equal(trimmed, soundfile.read(tmp_path / "out.wav", dtype="float32")[0], f"{case}")

import numpy as np
import pytest

from attune.scoring.cepstra import frequency_transform, loud_frames, mel_cepstral_distortion, mel_cepstrum


def smooth_spectra(seed, frames=3, size=257):
    random = np.random.default_rng(seed)
    cepstrum = random.normal(0, 1, (frames, 12)) / np.arange(1, 13)
    places = np.pi * np.arange(size) / (size - 1)
    return np.exp(2 * cepstrum @ np.cos(np.arange(12)[:, None] * places)), cepstrum


def test_without_warping_it_is_the_plain_cepstrum():
    spectra, cepstrum = smooth_spectra(1)
    found = mel_cepstrum(spectra, 0.0, order=20)
    assert np.allclose(found[:, 0], cepstrum[:, 0]) and np.allclose(found[:, 1:12], cepstrum[:, 1:])


@pytest.mark.parametrize("warp", [0.42, 0.466])
def test_many_coefficients_give_the_spectrum_back_on_the_bent_frequency_axis(warp):
    spectra, _ = smooth_spectra(2)
    omega = np.pi * np.arange(257) / 256
    bent = omega + 2 * np.arctan(warp * np.sin(omega) / (1 - warp * np.cos(omega)))
    found = mel_cepstrum(spectra, warp, order=120)
    logs = 2 * found @ np.cos(np.arange(121)[:, None] * bent)
    assert np.allclose(logs, np.log(spectra), atol=1e-6)


def test_distortion_is_the_mean_over_the_aligned_frames():
    random = np.random.default_rng(0)
    frames = random.normal(0, 1, (10, 40))
    assert mel_cepstral_distortion(frames, np.repeat(frames, 2, axis=0)) == 0
    shifted = frames.copy()
    shifted[:, 0] += 0.1
    assert mel_cepstral_distortion(frames, shifted) == pytest.approx(10 / np.log(10) * np.sqrt(2) * 0.1)


def test_frames_20_db_below_the_mean_power_are_not_compared():
    levels = np.array([1.0, 0.004, 0.002, 0.0, 0.002])  # the mean of their powers is a fifth of the loudest
    assert loud_frames(np.ones((5, 9)) * levels[:, None]).tolist() == [True, True, False, False, False]
    assert loud_frames(np.zeros((2, 9))).all()
    ends = np.zeros((2, 9))
    ends[0, 4], ends[1, 0] = 1.0, 0.0201  # what is between the ends is there twice
    assert loud_frames(ends).tolist() == [True, True]
    ends[1, 0] = 0.0199 / 2
    assert loud_frames(ends).tolist() == [True, False]


def test_the_recursion_keeps_what_is_not_bent():
    cepstrum = np.random.default_rng(0).normal(size=(2, 6))
    assert np.allclose(frequency_transform(cepstrum, 0.0, 5), cepstrum)

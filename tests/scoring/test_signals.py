import numpy as np
import pytest

from attune.scoring.signals import best_order, si_sdr
from attune.scoring.stoi import RATE, resample, stoi


def random_speech(seed, seconds=1.2, rate=16_000):
    """Noise whose level and color change every 60 ms."""
    random = np.random.default_rng(seed)
    pieces = []
    for _ in range(int(seconds / 0.06)):
        noise = random.normal(0, 1, int(0.06 * rate))
        pieces.append(np.convolve(noise, random.normal(0, 1, 8), "same") * 10 ** random.uniform(-3, 0))
    return np.concatenate(pieces)


@pytest.mark.parametrize("seed", range(5))
def test_si_sdr_is_the_ratio_after_the_best_scaling(seed):
    random = np.random.default_rng(seed)
    reference = random.normal(0, 1, 400)
    estimate = 0.3 * reference + random.normal(0, 0.2, 400) + 0.1
    one, other = reference - reference.mean(), estimate - estimate.mean()
    scales = np.linspace(-1, 1, 200_001)
    residuals = other @ other - 2 * scales * (one @ other) + scales**2 * (one @ one)
    best = scales[residuals.argmin()]
    expected = 10 * np.log10(best**2 * (one @ one) / residuals.min())
    assert si_sdr(reference, estimate) == pytest.approx(expected, abs=1e-3)


def test_si_sdr_does_not_depend_on_the_scale():
    reference, noise = np.random.default_rng(0).normal(0, 1, (2, 300))
    assert si_sdr(reference, reference + noise) == pytest.approx(si_sdr(reference, 7 * (reference + noise)))
    assert si_sdr(reference, reference) > 100


def test_sources_are_scored_in_their_best_order():
    sources = np.random.default_rng(0).normal(0, 1, (3, 500))
    noisy = sources + np.random.default_rng(1).normal(0, [[0.1], [0.5], [1]], (3, 500))
    found = best_order(sources, noisy[[2, 0, 1]])
    assert found == pytest.approx([si_sdr(*pair) for pair in zip(sources, noisy, strict=True)])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [10_000, 16_000])
def test_stoi_equals_pystoi(seed, rate):
    pystoi = pytest.importorskip("pystoi")
    clean = random_speech(seed, rate=rate)
    noisy = clean + np.random.default_rng(seed).normal(0, 0.1 * (seed + 1), len(clean))
    assert stoi(clean, noisy, rate) == pytest.approx(pystoi.stoi(clean, noisy, rate), abs=1e-9)


def test_stoi_falls_with_noise_and_is_one_without():
    clean, noise = random_speech(1), np.random.default_rng(1).normal(0, 1, 19_200)
    values = [stoi(clean, clean + level * noise, 16_000) for level in (0, 0.05, 0.2, 1)]
    assert values[0] == pytest.approx(1) and values == sorted(values, reverse=True) and values[-1] < 0.7


def test_too_little_speech_has_the_value_that_others_give_it():
    assert stoi(np.ones(1000), np.ones(1000), RATE) == 1e-5


def test_resampling_keeps_a_tone():
    times = np.arange(16_000) / 16_000
    found = resample(np.sin(2 * np.pi * 440 * times), 16_000)
    expected = np.sin(2 * np.pi * 440 * np.arange(10_000) / 10_000)
    assert len(found) == 10_000 and np.abs(found - expected)[500:-500].max() < 2e-3

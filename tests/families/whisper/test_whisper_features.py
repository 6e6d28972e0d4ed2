import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor

from attune.families.whisper.features import log_mel

from tiny import batch_of

SECOND = 16_000


def noise(samples, seed=0):
    return np.random.default_rng(seed).normal(0, 0.1, samples).astype(np.float32)


def features(*recordings, bins=80, frames=3000):
    batch = batch_of([(str(row), each, ()) for row, each in enumerate(recordings)])
    return log_mel(batch.audio, batch.lengths, bins, frames)


@pytest.mark.parametrize("bins", [80, 128])
def test_the_same_bits_as_transformers_makes(bins):
    recordings = [noise(samples) for samples in (1, 100, 43_211, 6 * SECOND, 479_900, 30 * SECOND)]
    theirs = WhisperFeatureExtractor(feature_size=bins)(recordings, sampling_rate=SECOND, return_tensors="pt")
    assert torch.equal(features(*recordings, bins=bins), theirs.input_features)


def test_a_row_is_the_same_bits_whoever_is_in_the_batch():
    short, long = noise(20_000), noise(12 * SECOND, seed=1)
    assert torch.equal(features(short)[0], features(long, short)[1])


def test_digital_silence_is_as_transformers_has_it():
    theirs = WhisperFeatureExtractor()(np.zeros(SECOND, np.float32), sampling_rate=SECOND, return_tensors="pt")
    assert torch.equal(features(np.zeros(SECOND, np.float32)), theirs.input_features)
    assert features(np.zeros(SECOND, np.float32)).unique().tolist() == [-1.5]


def test_a_shorter_window_is_the_beginning_of_the_full_one():
    recording = noise(3 * SECOND)
    assert torch.equal(features(recording, frames=500), features(recording)[..., :500])


def test_what_is_longer_than_the_window_is_cut():
    recording = noise(31 * SECOND)
    assert torch.equal(features(recording), features(recording[: 30 * SECOND]))


def test_samples_beyond_the_own_length_are_never_read():
    audio = torch.from_numpy(noise(2 * SECOND))[None]
    lengths = torch.tensor([SECOND])
    cleared = audio.clone()
    cleared[:, SECOND:] = 0
    assert torch.equal(log_mel(audio, lengths, 80, 3000), log_mel(cleared, lengths, 80, 3000))


def test_half_precision_training_leaves_them_as_they_are():
    recording = noise(SECOND)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = features(recording)
    assert torch.equal(narrow, features(recording))

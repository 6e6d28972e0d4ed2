import numpy as np
import pytest
import torch
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

from attune.audio.features import deltas, fbank, frame_count, log_mel, normalize, stack_frames
from attune.testing.data import speak

LENGTHS = (16_000, 7_000, 401, 100, 12_345)


def padded(rows):
    lengths = torch.tensor([len(row) for row in rows])
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True), lengths


def recordings(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [0.1 * torch.randn(length, generator=generator) for length in LENGTHS]


def test_log_mel_energies_are_kaldis():
    audio = speak("seven", seed=3)
    ours, _ = log_mel(*padded([torch.from_numpy(audio)]))
    bank = mel_filter_bank(257, 80, 20, 8000, 16_000, norm=None, mel_scale="kaldi", triangularize_in_mel_space=True)
    theirs = spectrogram(
        audio.astype(np.float64),
        window_function(400, "povey", periodic=False),
        frame_length=400,
        hop_length=160,
        fft_length=512,
        power=2.0,
        center=False,
        preemphasis=0.97,
        mel_filters=bank,
        log_mel="log",
        mel_floor=1.1920928955078125e-07,
        remove_dc_offset=True,
    ).T
    assert ours.shape[1:] == theirs.shape
    assert np.abs(ours[0].numpy() - theirs).max() < 1e-5


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (400, 1), (559, 1), (560, 2), (16_000, 98)])
def test_frames_are_windows_that_fit_whole_and_at_least_one(samples, frames):
    features, counts = fbank(*padded([torch.ones(samples)]))
    assert features.shape == (1, frames, 240)
    assert counts.tolist() == [frames] == [frame_count(samples)]


def test_padding_and_neighbours_change_no_float32_bit():
    rows = recordings()
    together, counts = fbank(*padded(rows))
    for row, audio in enumerate(rows):
        alone, (count,) = fbank(*padded([audio]))
        assert count == counts[row]
        assert torch.equal(together[row, :count].float(), alone[0].float())
        assert not together[row, count:].any()


def test_what_lies_beyond_the_length_is_never_read():
    audio, lengths = padded(recordings())
    noisy = audio.clone()
    noisy[1, lengths[1] :] = 7.0
    assert torch.equal(fbank(audio, lengths)[0], fbank(noisy, lengths)[0])


def test_deltas_of_a_ramp_are_its_slope_and_flatten_at_the_own_edges():
    ramp = torch.arange(10.0).repeat(2, 1)[..., None]
    slope = deltas(ramp, torch.tensor([10, 6]))[..., 0]
    assert torch.allclose(slope[0], torch.tensor([0.5, 0.8, 1, 1, 1, 1, 1, 1, 0.8, 0.5]))
    assert torch.allclose(slope[1], torch.tensor([0.5, 0.8, 1, 1, 0.8, 0.5, 0, 0, 0, 0]))


def test_normalized_features_have_zero_mean_and_unit_deviation_over_own_frames():
    frames = torch.randn(2, 50, 3, dtype=torch.float64) * 4 + 9
    for row, length in zip(normalize(frames, torch.tensor([50, 20])), (50, 20), strict=True):
        assert torch.allclose(row[:length].mean(0), torch.zeros(3, dtype=torch.float64))
        assert torch.allclose(row[:length].std(0, unbiased=False), torch.ones(3, dtype=torch.float64))
        assert not row[length:].any()


def test_digital_silence_gives_zeros_not_noise():
    features, _ = fbank(torch.zeros(1, 8_000), torch.tensor([8_000]))
    assert features.abs().max() < 1e-9


def test_stacking_joins_neighbours_and_ends_with_zeros():
    frames = torch.arange(1.0, 11.0).view(2, 5, 1)
    stacked, lengths = stack_frames(frames, torch.tensor([5, 4]), 3)
    assert stacked.tolist() == [[[1, 2, 3], [4, 5, 0]], [[6, 7, 8], [9, 0, 0]]]
    assert lengths.tolist() == [2, 2]

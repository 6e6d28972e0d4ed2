import itertools

import numpy as np
import pytest

from attune.audio.vad import Span, speech_frames, vad_chunks
from attune.types import SAMPLE_RATE


def speech(seconds, level=0.1, seed=0):
    """Noise in syllables, five a second, that never quite stops: loud and quiet parts as speech has them."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    noise = np.random.default_rng(seed).standard_normal(len(time))
    return (level * noise * (0.55 + 0.45 * np.sin(2 * np.pi * 5 * time))).astype(np.float32)


def silence(seconds):
    return np.zeros(round(seconds * SAMPLE_RATE), np.float32)


def recording(*parts, noise=0.0, offset=0.0):
    """Speech and pauses in turn, of so many seconds each, with noise throughout."""
    sounds = [speech(part, seed=index) if index % 2 == 0 else silence(part) for index, part in enumerate(parts)]
    samples = np.concatenate(sounds)
    hiss = np.random.default_rng(99).standard_normal(len(samples))
    return (samples + noise * hiss + offset).astype(np.float32)


def assert_near(spans, expected, within=0.3):
    assert len(spans) == len(expected), spans
    for span, (start, end) in zip(spans, expected, strict=True):
        assert start - within <= span.start <= start + 0.02
        assert end - 0.02 <= span.end <= end + within


@pytest.mark.parametrize(("noise", "offset"), [(0, 0), (1e-4, 0), (0.01, 0), (0.02, 0), (0.01, 0.05)])
def test_speech_is_found_in_silence_and_in_noise(noise, offset):
    samples = np.concatenate([silence(1.0), recording(2.0, 4.0, 3.0, 4.0, 1.0), silence(1.0)])
    samples = samples + recording(*[0.0, len(samples) / SAMPLE_RATE], noise=noise, offset=offset)[: len(samples)]
    assert_near(vad_chunks(samples), [(1.0, 3.0), (7.0, 10.0), (14.0, 15.0)])


def test_the_threshold_follows_noise_that_grows():
    quiet, noisy = recording(2.0, 4.0, 2.0, 20.0, noise=1e-4), recording(0.0, 16.0, 2.0, 4.0, 2.0, 4.0, noise=0.015)
    first, second, *sudden_noise, third, fourth = vad_chunks(np.concatenate([quiet, noisy]))
    assert_near([first, second, third, fourth], [(0.0, 2.0), (6.0, 8.0), (44.0, 46.0), (50.0, 52.0)])
    assert all(span.start >= 28.0 - 0.3 and span.end <= 38.0 + 0.3 for span in sudden_noise)


def test_quiet_speech_beside_loud_speech_is_found():
    samples = np.concatenate([speech(3.0, level=0.3), silence(4.0), speech(3.0, level=0.01), silence(2.0)])
    assert_near(vad_chunks(samples), [(0.0, 3.0), (7.0, 10.0)])


def test_speech_of_a_few_steps_of_16_bits_is_found():
    samples = np.round(recording(2.0, 4.0, 3.0, 4.0, 1.0) / 120 * 32_767) / 32_767
    assert np.abs(samples).max() * 32_767 < 130
    assert_near(vad_chunks(samples.astype(np.float32)), [(0.0, 2.0), (6.0, 9.0), (13.0, 14.0)])


def test_a_click_is_no_speech():
    samples = recording(2.0, 4.0)
    samples[64_000:64_160] = 0.9
    assert_near(vad_chunks(samples), [(0.0, 2.0)])


def test_speech_without_a_pause_is_one_span_and_nothing_has_none():
    assert vad_chunks(speech(20.0)) == [Span(0.0, 20.0)]
    assert vad_chunks(silence(5.0)) == []
    assert vad_chunks(recording(0.0, 5.0, noise=1e-4)) == []


@pytest.mark.parametrize("samples", [1, 100, 7_999])
def test_the_shortest_recordings_have_an_answer(samples):
    assert all(0 <= span.start < span.end <= samples / SAMPLE_RATE for span in vad_chunks(speech(1.0)[:samples]))


def test_chunks_are_within_the_limit_and_have_all_speech():
    pauses = itertools.cycle([0.5, 0.7, 1.1, 0.6, 2.2])
    parts = [each for length in range(1, 13) for each in (length / 2, next(pauses))]
    samples, edges = recording(*parts, noise=1e-3), np.cumsum([0, *parts])
    chunks = vad_chunks(samples, max_seconds=12.0)
    assert all(0 < chunk.end - chunk.start <= 12.0 for chunk in chunks)
    assert all(one.end <= other.start for one, other in itertools.pairwise(chunks))
    for start, end in zip(edges[0::2], edges[1::2], strict=False):
        assert any(chunk.start <= start + 0.02 and end - 0.02 <= chunk.end for chunk in chunks)


def test_a_cut_is_at_the_longest_pause_within_reach():
    chunks = vad_chunks(recording(4.0, 0.6, 4.0, 1.5, 2.0, 0.6, 5.0), max_seconds=15.0)
    assert_near(chunks, [(0.0, 8.6), (10.1, 17.7)])


def test_what_fits_is_one_chunk_but_not_over_a_long_pause():
    assert_near(vad_chunks(recording(3.0, 1.0, 3.0, 1.0, 3.0)), [(0.0, 11.0)])
    assert_near(vad_chunks(recording(3.0, 5.0, 3.0)), [(0.0, 3.0), (8.0, 11.0)])


def test_speech_without_a_pause_is_cut_where_it_is_quietest():
    samples = speech(50.0)
    samples[22 * SAMPLE_RATE : 22 * SAMPLE_RATE + 1600] *= 0.01
    first, second = vad_chunks(samples)
    assert first.start == 0.0 and second.end == 50.0
    assert first.end == second.start == pytest.approx(22.05, abs=0.06)


def test_other_rates_and_louder_copies_are_cut_alike():
    samples = recording(4.0, 0.6, 4.0, 1.5, 2.0)
    assert vad_chunks(3 * samples, 5.0) == vad_chunks(samples, 5.0)
    assert_near(vad_chunks(samples[::2], 5.0, SAMPLE_RATE // 2), [(0.0, 4.0), (4.6, 8.6), (10.1, 12.1)])


def test_words_end_before_their_reverberation_and_a_far_speaker_has_words_all_the_same():
    near, tail, far = speech(2, 0.3), speech(0.5, 0.004), speech(2, 0.004)
    samples = np.concatenate([near, tail, silence(8), far, silence(5)]) + 0.0002 * speech(17.5, seed=9)
    frames = speech_frames(samples).is_speech
    assert frames[:200].mean() > 0.9 and not frames[203:1045].any()
    assert frames[1052:1247].mean() > 0.7 and not frames[1255:].any()

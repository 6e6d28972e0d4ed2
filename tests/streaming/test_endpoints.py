"""Endpointing: utterances end with a pause, whatever the size of the pieces they come in."""

import itertools

import numpy as np
import pytest

from attune.streaming.endpoints import Endpointer, EndpointRules
from attune.testing.data import speak


def talk(*seconds_of_silence):
    generator = np.random.default_rng(1)
    pieces = []
    for number, silence in enumerate(seconds_of_silence):
        pieces += [speak("abcd" * (number + 1)), np.zeros(round(silence * 16_000))]
    noise = generator.normal(scale=1e-4, size=sum(map(len, pieces)))
    return (np.concatenate(pieces) + noise).astype(np.float32)


def spans(samples, step, rules=EndpointRules()):
    endpointer = Endpointer(rules)
    found = [
        span for start in range(0, len(samples), step) for span in endpointer.accept(samples[start : start + step])
    ]
    return [*found, *endpointer.finish()]


@pytest.mark.parametrize("step", [7, 160, 1_601, 1_000_000])
def test_utterances_do_not_depend_on_how_the_stream_is_cut(step):
    samples = talk(1.0, 0.8, 1.2)
    found, expected = spans(samples, step), spans(samples, 160)
    assert len(found) == 3
    for one, other in zip(found, expected, strict=True):
        assert one.start == other.start and np.array_equal(one.samples, other.samples)


def test_a_short_pause_ends_nothing_and_the_rules_say_what_is_short():
    samples = talk(0.4, 1.0)
    assert len(spans(samples, 160)) == 1
    assert len(spans(samples, 160, EndpointRules(silence_seconds=0.2))) == 2


def test_speech_without_a_pause_is_cut_and_no_sample_is_lost():
    samples = np.tile(speak("abcd"), 20).astype(np.float32)
    found = spans(samples, 160, EndpointRules(max_seconds=2.0))
    assert all(span.seconds <= 2.0 for span in found)
    for one, other in itertools.pairwise(found):
        assert other.start == pytest.approx(one.start + one.seconds)


def test_silence_and_noise_are_no_speech():
    noise = np.random.default_rng(2).normal(scale=0.01, size=64_000).astype(np.float32)
    assert spans(np.zeros(64_000, np.float32), 160) == spans(noise, 160) == []


def test_no_silence_at_all_means_the_first_quiet_frame():
    samples = talk(0.4, 1.0)
    assert len(spans(samples, 160, EndpointRules(silence_seconds=0.0))) >= 2

from itertools import permutations

import numpy as np
import pytest

from attune.scoring.diarization import best_matching, diarization_errors

STEP = 0.01


def random_segments(random, speakers):
    found = []
    for _ in range(int(random.integers(0, 6))):
        start = int(random.integers(0, 300))
        found.append((start * STEP, (start + int(random.integers(1, 120))) * STEP, f"s{random.integers(speakers)}"))
    return found


def on_grid(segments, names):
    active = np.zeros((len(names), 500), bool)
    for start, end, speaker in segments:
        active[names.index(speaker), round(start / STEP) : round(end / STEP)] = True
    return active


def by_brute_force(reference, hypothesis, collar):
    """Every frame of a fine grid under every matching of speakers."""
    names, others = (sorted({each[2] for each in segments}) for segments in (reference, hypothesis))
    size = max(len(names), len(others))
    wanted, found = (
        np.pad(on_grid(each, own), ((0, size - len(own)), (0, 0)))
        for each, own in ((reference, names), (hypothesis, others))
    )
    scored = np.ones(500, bool)
    middles = (np.arange(500) + 0.5) * STEP
    for start, end, _ in reference if collar else ():
        for edge in (start, end):
            scored &= abs(middles - edge) >= collar
    wanted, found = wanted[:, scored], found[:, scored]
    errors = [
        (np.maximum(wanted.sum(0), found.sum(0)) - (wanted & found[list(order)]).sum(0)).sum()
        for order in permutations(range(size))
    ]
    return min(errors) * STEP, wanted.sum() * STEP


@pytest.mark.parametrize("collar", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(40))
def test_errors_are_those_of_all_matchings_on_a_fine_grid(seed, collar):
    random = np.random.default_rng(seed)
    reference, hypothesis = random_segments(random, 3), random_segments(random, int(random.integers(1, 5)))
    found = diarization_errors(reference, hypothesis, collar)
    errors, speech = by_brute_force(reference, hypothesis, collar)
    assert found.total == pytest.approx(errors, abs=1e-6)
    assert found.speech == pytest.approx(speech, abs=1e-6)


def test_each_kind_of_error_has_its_seconds():
    reference = [(0.0, 4.0, "a"), (4.0, 6.0, "b")]
    found = diarization_errors(reference, [(1.0, 4.5, "x"), (4.5, 7.0, "y")])
    assert found == pytest.approx((1.0, 1.0, 0.5, 6.0))


def test_the_collar_is_on_each_side_of_a_boundary():
    """What pyannote calls 0.5, and md-eval and dscore 0.25."""
    late = diarization_errors([(1.0, 2.0, "a")], [(1.2, 2.0, "a")], collar=0.25)
    assert late.total == 0 and late.speech == pytest.approx(0.5)


def test_a_segment_that_lasts_all_the_time_is_speech():
    assert diarization_errors([(0.0, 20.0, "a")], []).missed == 20


@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (4, 2), (3, 3), (0, 2)])
def test_the_best_matching_is_the_best_of_all(shape):
    gains = np.random.default_rng(1).random(shape)
    wide = gains if shape[0] <= shape[1] else gains.T
    every = permutations(range(wide.shape[1]), wide.shape[0])
    best = max(sum(wide[row, column] for row, column in enumerate(each)) for each in every)
    assert best_matching(gains) == pytest.approx(best)


def test_forty_speakers_are_matched_at_once():
    reference = [(start, start + 0.9, f"r{start}") for start in range(40)]
    hypothesis = [(start, start + 1.0, f"h{-start}") for start in range(40)]
    errors = diarization_errors(reference, hypothesis)
    assert errors.confusion == pytest.approx(0) and errors.false_alarm == pytest.approx(4)

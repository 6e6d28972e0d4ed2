"""Scores of parts: named, counted, with the interval that the whole would have."""

import numpy as np

from attune.report.slices import SECONDS, Ratios, bins, slices_of
from attune.scoring import bootstrap
from attune.scoring.error_rates import WER

RATIOS = Ratios(WER, np.array([1, 0, 2, 1]), np.array([4, 4, 4, 4]))


def test_each_part_has_the_score_that_its_utterances_have_alone():
    found = slices_of(RATIOS, {"speaker": ["a", "a", "b", "b"]})
    own = bootstrap.percent(WER, [1, 0], [4, 4])
    assert found["speaker"][0] == ["a", 2, own.value, own.low, own.high]
    assert found["speaker"][1][:3] == ["b", 2, 37.5]


def test_a_kind_with_a_single_part_says_nothing_and_is_left_out():
    assert slices_of(RATIOS, {"language": ["en"] * 4, "speaker": []}) == {}


def test_durations_fall_into_named_intervals():
    assert bins([0.5, 1.0, 4.9, 31, None], SECONDS, "s") == ["< 1 s", "1–2 s", "2–5 s", "≥ 30 s", None]

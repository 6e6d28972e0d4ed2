import math

import numpy as np
import pytest

from attune.scoring.bootstrap import percent


def utterances(number, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, 25, number)
    return rng.binomial(tokens, 0.1), tokens


def test_the_value_is_the_ratio_of_the_sums_not_the_mean_of_the_ratios():
    assert percent([1, 0], [1, 9]).value == 10


@pytest.mark.parametrize("number", [50, 20_000])
def test_the_interval_is_the_same_every_time_and_in_any_order(number):
    edits, tokens = utterances(number)
    shuffled = np.random.default_rng(1).permutation(number)
    assert percent(edits, tokens) == percent(edits, tokens) == percent(edits[shuffled], tokens[shuffled])


@pytest.mark.parametrize("number", [400, 5000, 20_000])
def test_the_interval_is_as_wide_as_theory_says_with_and_without_blocks(number):
    edits, tokens = utterances(number)
    score = percent(edits, tokens)
    residuals = edits - tokens * score.value / 100
    expected = 2 * 1.96 * 100 * math.sqrt((residuals**2).sum()) / tokens.sum()
    assert score.low < score.value < score.high
    assert score.high - score.low == pytest.approx(expected, rel=0.15)


def test_about_95_of_100_intervals_hold_the_truth():
    hits = sum(score.low <= 10 <= score.high for score in (percent(*utterances(200, seed)) for seed in range(100)))
    assert 88 <= hits <= 100


def test_one_utterance_leaves_nothing_to_resample():
    score = percent([1], [4])
    assert (score.low, score.value, score.high) == (25, 25, 25)


def test_no_utterances_have_no_figure():
    assert math.isnan(percent([], []).value)


def test_resamples_of_empty_references_alone_do_not_divide_by_zero():
    score = percent([2, 0, 1], [0, 0, 10])
    assert score.value == 30
    assert math.isfinite(score.high)

import math

import numpy as np
import pytest

from attune.scoring.bootstrap import mean, percent, statistic
from attune.scoring.error_rates import WER
from attune.types import Metric, Score

SI_SDR = Metric("si_sdr", "dB", True, "Scale-invariant signal-to-distortion ratio.")


def utterances(number, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, 25, number)
    return rng.binomial(tokens, 0.1), tokens


def test_the_value_is_the_ratio_of_the_sums_not_the_mean_of_the_ratios():
    assert percent(WER, [1, 0], [1, 9]).value == 10


@pytest.mark.parametrize("number", [50, 20_000])
def test_the_interval_is_the_same_every_time_and_in_any_order(number):
    edits, tokens = utterances(number)
    shuffled = np.random.default_rng(1).permutation(number)
    assert percent(WER, edits, tokens) == percent(WER, edits, tokens) == percent(WER, edits[shuffled], tokens[shuffled])


@pytest.mark.parametrize("number", [400, 5000, 20_000])
def test_the_interval_is_as_wide_as_theory_says_with_and_without_blocks(number):
    edits, tokens = utterances(number)
    score = percent(WER, edits, tokens)
    residuals = edits - tokens * score.value / 100
    expected = 2 * 1.96 * 100 * math.sqrt((residuals**2).sum()) / tokens.sum()
    assert score.low < score.value < score.high
    assert score.high - score.low == pytest.approx(expected, rel=0.15)


def test_about_95_of_100_intervals_hold_the_truth():
    hits = sum(score.low <= 10 <= score.high for score in (percent(WER, *utterances(200, seed)) for seed in range(100)))
    assert 88 <= hits <= 100


def test_one_utterance_leaves_nothing_to_resample():
    score = percent(WER, [1], [4])
    assert (score.low, score.value, score.high) == (25, 25, 25)


def test_no_utterances_have_no_figure():
    assert math.isnan(percent(WER, [], []).value)


def test_resamples_of_empty_references_alone_do_not_divide_by_zero():
    score = percent(WER, [2, 0, 1], [0, 0, 10])
    assert score.value == 30
    assert math.isfinite(score.high)


KNOWN = [
    (50, (10.641399416909621, 8.594451003541913, 12.993585526315789)),
    (20_000, (9.986434382798935, 9.886597148438375, 10.09423053333113)),
]


# Figures of the first version: reports that exist must be found again to the last digit.
@pytest.mark.parametrize(("number", "expected"), KNOWN)
def test_intervals_of_ratios_have_not_changed(number, expected):
    assert percent(WER, *utterances(number)) == Score(WER, *expected)


@pytest.mark.parametrize("number", [50, 20_000])
def test_a_mean_has_the_same_interval_every_time_and_in_any_order(number):
    values = np.random.default_rng(0).normal(10, 3, number)
    score = mean(SI_SDR, values)
    assert score == mean(SI_SDR, values) == mean(SI_SDR, np.random.default_rng(1).permutation(values))
    assert score.value == pytest.approx(values.mean())
    assert score.high - score.low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(number), rel=0.15)


def test_nothing_has_no_mean_and_a_perfect_estimate_an_infinite_one():
    assert math.isnan(mean(SI_SDR, []).value)
    assert mean(SI_SDR, [1.0, math.inf]) == Score(SI_SDR, math.inf, math.inf, math.inf)
    assert math.isnan(mean(SI_SDR, [1.0, math.nan]).value)


def test_any_statistic_of_units_is_resampled_in_the_order_of_their_names():
    values = np.random.default_rng(0).normal(0, 1, 200)
    names = [f"u{index:03d}" for index in range(200)]
    score = statistic(SI_SDR, lambda index: float(np.median(values[index])), names)
    mixed = np.random.default_rng(1).permutation(200)
    again = statistic(SI_SDR, lambda index: float(np.median(values[mixed][index])), [names[each] for each in mixed])
    assert score == again and score.value == np.median(values)
    # The standard error of a median of normal values is 1.2533 sigma / sqrt(n).
    assert score.high - score.low == pytest.approx(2 * 1.96 * 1.2533 / math.sqrt(200), rel=0.3)


def test_a_statistic_of_a_mean_agrees_with_the_mean():
    values = np.random.default_rng(0).normal(10, 3, 300)
    expected = mean(SI_SDR, values)
    score = statistic(SI_SDR, lambda index: float(values[index].mean()), [f"{each:+.12f}" for each in values])
    assert (score.low, score.high) == pytest.approx((expected.low, expected.high), abs=0.1)


def test_resamples_without_a_value_are_left_out_of_the_interval():
    is_target = np.array([True, False, False, False])
    score = statistic(SI_SDR, lambda index: 1.0 if is_target[index].any() else math.nan, ["a", "b", "c", "d"])
    assert (score.value, score.low, score.high) == (1.0, 1.0, 1.0)
    assert math.isnan(statistic(SI_SDR, lambda index: 0.0, []).value)
    assert math.isnan(statistic(SI_SDR, lambda index: math.nan, ["a"]).low)

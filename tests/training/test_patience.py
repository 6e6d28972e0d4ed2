import math

import pytest

from attune.scoring.error_rates import WER
from attune.training.patience import has_stalled
from attune.types import Metric

SI_SDR = Metric("si_sdr", "dB", True, "Scale-invariant signal-to-distortion ratio.")


@pytest.mark.parametrize(
    ("scores", "stalled"),
    [
        ([], False),
        ([9.0], False),
        ([9.0, 9.5], False),  # one has been tried, of two
        ([9.0, 9.5, 9.1], True),
        ([9.0, 9.5, 8.9], False),
        ([9.0, 9.0, 9.0], True),  # as good is no better
        ([9.0, 8.0, 8.5, 7.9], False),
        ([9.0, 8.0, 8.5, 8.1], True),
        ([9.0, math.nan, math.nan], True),
        ([math.nan, math.nan, 9.0], False),
        ([math.nan, math.nan, math.nan], True),
    ],
)
def test_an_error_rate_has_stalled_when_two_scores_bring_nothing_better(scores, stalled):
    assert has_stalled(scores, patience=2, metric=WER) is stalled


def test_decibels_are_better_when_they_rise():
    assert has_stalled([-0.5, -0.6, -0.7], patience=2, metric=SI_SDR)
    assert has_stalled([0.5, math.nan, 0.5], patience=2, metric=SI_SDR)
    assert not has_stalled([0.5, 0.4, 0.6], patience=2, metric=SI_SDR)
    assert not has_stalled([math.nan, math.nan, -20.0], patience=2, metric=SI_SDR)


def test_an_unbroken_run_and_one_that_looks_at_every_score_stop_at_the_same_place():
    scores = [5.0, 4.0, 4.5, 3.9, 4.0, 4.1, 3.95, 1.0]
    assert [has_stalled(scores[:count], 3, WER) for count in range(9)].index(True) == 7

import math

import pytest

from attune.training.patience import has_stalled


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
    assert has_stalled(scores, patience=2, rises=False) is stalled


def test_an_accuracy_is_better_when_it_rises():
    assert has_stalled([0.5, 0.4, 0.3], patience=2, rises=True)
    assert not has_stalled([0.5, 0.4, 0.6], patience=2, rises=True)


def test_an_unbroken_run_and_one_that_looks_at_every_score_stop_at_the_same_place():
    scores = [5.0, 4.0, 4.5, 3.9, 4.0, 4.1, 3.95, 1.0]
    assert [has_stalled(scores[:count], 3, rises=False) for count in range(9)].index(True) == 7

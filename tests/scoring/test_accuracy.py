import math

import pytest

from attune.errors import DataError
from attune.scoring.accuracy import score_labels


def test_accuracy_is_the_share_of_equal_labels_among_those_predicted():
    scores = score_labels(["yes", "no", "up", "down"], ["yes", "yes", None, "down"])
    assert scores.values["accuracy"].value == pytest.approx(100 * 2 / 3)
    assert scores.values["accuracy"].low < scores.values["accuracy"].high
    assert scores.counts == {"num_correct": 2, "num_scored": 3, "num_absent": 1, "num_ref": 4}


def test_labels_are_compared_as_they_are_written():
    assert score_labels(["Yes"], ["yes"]).values["accuracy"].value == 0


def test_nothing_predicted_is_no_accuracy_at_all():
    assert math.isnan(score_labels(["a"], [None]).values["accuracy"].value)


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="1 references but 2 predictions"):
        score_labels(["a"], ["a", "b"])

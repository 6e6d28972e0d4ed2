import pytest

from attune.metrics import Metric
from attune.training.schedule import NewBob, Schedule

WER = Metric("wer", "%", False, "Words that are wrong.")
ACCURACY = Metric("accuracy", "%", True, "Labels that are right.")


def test_warms_up_linearly_and_ends_near_zero():
    schedule = Schedule(lr=1.0, steps=100, warmup=10, shape="linear")
    assert [schedule.at(step) for step in (1, 5, 10, 11)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert 0 < schedule.at(100) == pytest.approx(1 / 90)


@pytest.mark.parametrize(("shape", "middle"), [("linear", 0.5), ("cosine", 0.5), ("constant", 1.0)])
def test_each_shape_has_its_middle(shape, middle):
    assert Schedule(1.0, 100, 0, shape).at(51) == pytest.approx(middle)


def test_the_inverse_square_root_goes_on_from_the_warmup_as_noam_does():
    schedule = Schedule(2.0, 1000, warmup=100, shape="inverse_sqrt")
    assert [schedule.at(step) for step in (50, 100, 400, 900)] == pytest.approx([1.0, 2.0, 1.0, 2 / 3])
    assert [Schedule(2.0, 1000, 0, "inverse_sqrt").at(step) for step in (1, 4)] == pytest.approx([2.0, 1.0])


def test_steps_past_the_end_stay_at_the_end():
    assert Schedule(1.0, 10, 0, "linear").at(50) == 0.0


def test_no_warmup_starts_at_the_full_rate():
    assert Schedule(3e-4, 10, 0, "linear").at(1) == 3e-4


def test_with_restarts_the_shape_begins_again_at_the_full_rate():
    schedule = Schedule(1.0, 1000, warmup=10, shape="cosine", restart_every=100)
    assert [schedule.at(step) for step in (5, 11, 61, 111, 161, 911)] == pytest.approx([0.5, 1.0, 0.5, 1.0, 0.5, 1.0])
    assert schedule.at(110) == pytest.approx(Schedule(1.0, 100, 0, "cosine").at(100))
    assert schedule.at(110) < 1e-3


@pytest.mark.parametrize(
    ("patience", "scores", "part"),
    [
        (0, [], 1.0),
        (0, [90.0], 1.0),
        (0, [90.0, 80.0, 70.0], 1.0),
        (0, [90.0, 89.9], 0.5),  # better, but by less than the threshold
        (0, [90.0, 91.0, 90.0], 0.5),  # compared with the score before, not with the best
        (0, [90.0, 90.0, 90.0], 0.25),
        (1, [90.0, 90.0], 1.0),
        (1, [90.0, 90.0, 90.0], 0.5),
        (1, [90.0, 90.0, 80.0, 80.0], 0.5),  # a good one in between does not give patience back, as in SpeechBrain
        (0, [0.0, 0.0], 0.5),
        (0, [float("nan"), 90.0, 80.0], 0.5),
        (0, [100.0, 99.75], 1.0),  # exactly the threshold is enough
    ],
)
def test_newbob_anneals_where_a_score_hardly_improves(patience, scores, part):
    assert NewBob(WER, 0.5, 0.0025, patience).at(scores) == part


def test_newbob_knows_which_direction_is_better():
    assert NewBob(ACCURACY, 0.5, 0.0025, 0).at([50.0, 60.0, 70.0, 65.0]) == 0.5

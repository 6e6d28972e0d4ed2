import pytest

from attune.training.schedule import Schedule


def test_warms_up_linearly_and_ends_near_zero():
    schedule = Schedule(lr=1.0, steps=100, warmup=10, shape="linear")
    assert [schedule.at(step) for step in (1, 5, 10, 11)] == pytest.approx([0.1, 0.5, 1.0, 1.0])
    assert 0 < schedule.at(100) == pytest.approx(1 / 90)


@pytest.mark.parametrize(("shape", "middle"), [("linear", 0.5), ("cosine", 0.5), ("constant", 1.0)])
def test_each_shape_has_its_middle(shape, middle):
    assert Schedule(1.0, 100, 0, shape).at(51) == pytest.approx(middle)


def test_steps_past_the_end_stay_at_the_end():
    assert Schedule(1.0, 10, 0, "linear").at(50) == 0.0


def test_no_warmup_starts_at_the_full_rate():
    assert Schedule(3e-4, 10, 0, "linear").at(1) == 3e-4


def test_with_restarts_the_shape_begins_again_at_the_full_rate():
    schedule = Schedule(1.0, 1000, warmup=10, shape="cosine", restart_every=100)
    assert [schedule.at(step) for step in (5, 11, 61, 111, 161, 911)] == pytest.approx([0.5, 1.0, 0.5, 1.0, 0.5, 1.0])
    assert schedule.at(110) == pytest.approx(Schedule(1.0, 100, 0, "cosine").at(100))
    assert schedule.at(110) < 1e-3

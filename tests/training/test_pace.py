"""Which rank the others wait for, and what it does meanwhile."""

import time

import pytest
import torch

from attune.training.pace import RankPace, StepTimer, find_stragglers


def pace(compute: float, data: float = 0.0, micros: float = 1.0, step: float = 1.0) -> RankPace:
    return RankPace(step, compute, data, micros, 1.0)


def test_ranks_alike_have_no_straggler():
    assert not find_stragglers([pace(0.5), pace(0.55), pace(0.45)])


@pytest.mark.parametrize(("slow", "waits"), [(pace(0.9), False), (pace(0.3, 0.6), True)])
def test_a_slow_rank_is_found_with_what_it_does(slow, waits):
    [found] = find_stragglers([pace(0.3), slow, pace(0.31), pace(0.29)])
    assert (found.rank, found.waits_for_data) == (1, waits)
    assert found.times == pytest.approx(3.0) and found.lost_seconds == pytest.approx(0.6)


def test_of_two_ranks_the_slower_is_compared_with_the_other():
    assert [each.rank for each in find_stragglers([pace(0.9), pace(0.4)])] == [0]


def test_a_rank_with_more_micro_batches_is_not_slow():
    assert not find_stragglers([pace(0.8, micros=2), pace(0.4), pace(0.4)])


def test_a_difference_that_costs_little_of_a_step_is_not_worth_a_word():
    assert not find_stragglers([pace(0.02), pace(0.05), pace(0.02)])


def test_a_rank_without_micro_batches_is_not_judged_and_one_rank_is_never_slow():
    assert not find_stragglers([pace(0.9), pace(0.0, micros=0)])
    assert not find_stragglers([pace(0.9)])


def test_computing_and_waiting_for_data_are_told_apart():
    timer = StepTimer(torch.device("cpu"))
    with timer.computing():
        time.sleep(0.02)
    with timer.loading():
        time.sleep(0.05)
    measured = timer.read(2)
    assert measured.compute_seconds >= 0.02 and measured.data_seconds >= 0.05 and measured.micros == 2

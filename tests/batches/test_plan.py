import numpy as np
import pytest

from attune.batches.plan import Budget, Plan, padding_share, plan_epoch, plan_in_order, slots_of, spread
from attune.errors import DataError

from work import elements_made, lines_run

BUDGET = Budget(micro_seconds=60.0, micro_utterances=None, micros_per_step=8)


def common_voice_like(count: int, seed: int = 0) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).gamma(6.0, 0.9, count), 1.0, 25.0)


def plan(seconds: np.ndarray, budget: Budget = BUDGET, seed: int = 17, epoch: int = 0):
    return plan_epoch(seconds, np.arange(len(seconds)), budget, seed, epoch)


@pytest.mark.parametrize("budget", [BUDGET, Budget(None, 7, 3), Budget(25.0, None, 1)])
@pytest.mark.parametrize("count", [1, 2, 100, 3000])
def test_every_utterance_is_in_exactly_one_micro_batch_of_an_epoch(budget, count):
    cut = plan(common_voice_like(count), budget)
    seen = [row for step in range(cut.steps) for slot in range(budget.micros_per_step) for row in cut.micro(step, slot)]
    assert sorted(seen) == list(range(count))


def test_only_the_given_rows_are_planned():
    seconds = common_voice_like(100)
    cut = plan_epoch(seconds, np.arange(0, 100, 2), BUDGET, seed=1, epoch=0)
    assert sorted(cut.order) == list(range(0, 100, 2))


def test_no_micro_batch_exceeds_its_seconds_when_padded():
    seconds = common_voice_like(3000)
    cut = plan(seconds)
    longest = np.maximum.reduceat(seconds[cut.order], cut.bounds[:-1])
    assert (longest * np.diff(cut.bounds)).max() <= BUDGET.micro_seconds


@pytest.mark.parametrize(("budget", "full"), [(Budget(60.0, None, 8), 30), (Budget(None, 7, 3), 7)])
def test_only_the_first_and_the_last_micro_batch_of_the_sorted_utterances_are_not_full(budget, full):
    sizes = sorted(np.diff(plan(np.full(1000, 2.0), budget).bounds))
    assert sizes[2:] == [full] * (len(sizes) - 2) and sizes[0] > 0


def test_padding_is_at_most_five_percent():
    assert padding_share(np.array([1.0, 2.0, 3.0, 4.0]), Plan(np.arange(4), np.array([0, 2, 4]), 1)) == pytest.approx(
        1 / 6
    )
    seconds = common_voice_like(20_000)
    assert padding_share(seconds, plan(seconds)) <= 0.05
    assert padding_share(seconds, plan(seconds, Budget(240.0, None, 8))) <= 0.05


def test_the_same_arguments_give_the_same_plan_and_another_epoch_gives_other_batches():
    seconds = common_voice_like(2000)
    first, again, next_epoch = plan(seconds), plan(seconds), plan(seconds, epoch=1)
    assert np.array_equal(first.order, again.order) and np.array_equal(first.bounds, again.bounds)

    def batches(cut):
        return {tuple(sorted(part)) for part in np.split(cut.order, cut.bounds[1:-1])}

    assert len(batches(first) & batches(next_epoch)) < 0.02 * first.micros


def test_small_sets_of_equal_lengths_get_other_batches_each_epoch():
    seconds = np.full(64, 3.0)
    budget = Budget(24.0, None, 2)
    assert not np.array_equal(plan(seconds, budget).order, plan(seconds, budget, epoch=1).order)


def test_slots_past_the_end_are_empty():
    cut = plan(np.full(10, 2.0), Budget(None, 1, 4))
    assert cut.steps == 3
    sizes = sorted(len(cut.micro(2, slot)) for slot in range(4))
    assert sizes == [0, 0, 1, 1]


def test_an_utterance_longer_than_the_budget_is_refused_with_the_setting_to_change():
    with pytest.raises(DataError, match=r"40\.0 s does not fit into batches\.micro_seconds=30"):
        plan(np.array([3.0, 40.0]), Budget(30.0, None, 1))


def test_evaluation_takes_any_length_longest_first():
    seconds = np.array([3.0, 100.0, 1.0, 2.0])
    cut = plan_in_order(seconds, Budget(10.0, None, 1))
    assert list(cut.order) == [1, 0, 3, 2]
    assert list(cut.bounds) == [0, 1, 4]


def test_planning_looks_at_each_utterance_a_few_times_and_runs_a_few_lines_for_each_micro_batch():
    seconds = common_voice_like(50_000)
    budget = Budget(240.0, None, 8)
    assert elements_made(lambda counted: plan(counted, budget), seconds) < 20 * len(seconds)
    assert lines_run(plan, seconds, budget) < 20 * plan(seconds, budget).micros


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("micros", [1, 3, 4, 6, 8])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_the_ranks_share_all_slots_in_order(micros, ranks, aligned):
    shares = [list(slots_of(rank, ranks, micros, aligned)) for rank in range(ranks)]
    assert [slot for share in shares for slot in share] == list(range(micros))


def test_aligned_shares_are_whole_branches():
    assert [list(slots_of(rank, 2, 6, aligned=True)) for rank in range(2)] == [[0, 1, 2, 3], [4, 5]]


def test_a_budget_beyond_all_numbers_takes_every_utterance():
    seconds = np.linspace(0.1, 20, 50)
    plan = plan_epoch(seconds, np.arange(50), Budget(1.7e308, None, 1), seed=1, epoch=0)
    assert sorted(plan.order) == list(range(50)) and plan.micros == 1
    assert plan_in_order(seconds, Budget(float("inf"), None, 1)).micros == 1


@pytest.mark.parametrize(("utterances", "ranks"), [(6, 2), (7, 3), (3, 3), (2, 4), (40, 2)])
def test_every_rank_has_something_to_decode_where_there_are_as_many_utterances(utterances, ranks):
    before = plan_in_order(np.linspace(1.0, 5.0, utterances), Budget(60.0, None, 1))
    after = spread(before, ranks)
    assert after.micros == max(before.micros, min(ranks, utterances))
    assert list(after.order) == list(before.order) and {*before.bounds} <= {*after.bounds}
    assert min(np.diff(after.bounds)) > 0

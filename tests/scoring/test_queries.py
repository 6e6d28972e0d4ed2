from functools import cache

import numpy as np
import pytest

from attune.scoring.dtw import align, subsequence_distances
from attune.scoring.queries import BETA, cost_table, match, term_weighted_value


def cheapest_subsequence(costs):
    """By recursion over every path: one query frame a step, none, one or two document frames."""

    @cache
    def total(row, column):
        if column < 0:
            return np.inf
        if row == 0:
            return costs[0, column]
        return costs[row, column] + min(total(row - 1, column - step) for step in (0, 1, 2))

    return min(total(len(costs) - 1, column) for column in range(costs.shape[1])) / len(costs)


def test_batched_warping_equals_recursion_over_every_path():
    random = np.random.default_rng(0)
    tables = [random.random((random.integers(1, 8), random.integers(1, 12))) for _ in range(30)]
    expected = [cheapest_subsequence(each) for each in tables]
    assert subsequence_distances(tables) == pytest.approx(expected)


def cheapest_path(costs):
    @cache
    def total(row, column):
        if row < 0 or column < 0:
            return 0.0 if row == column == -1 else np.inf
        before = min(total(row - 1, column - 1), total(row - 1, column), total(row, column - 1))
        return costs[row, column] + before

    return total(costs.shape[0] - 1, costs.shape[1] - 1)


@pytest.mark.parametrize("seed", range(10))
def test_the_aligned_path_is_whole_and_the_cheapest(seed):
    random = np.random.default_rng(seed)
    costs = random.random((random.integers(1, 9), random.integers(1, 9)))
    rows, columns = align(costs)
    assert (rows[0], columns[0]) == (0, 0)
    assert (rows[-1] + 1, columns[-1] + 1) == costs.shape
    assert {tuple(step) for step in np.diff([rows, columns]).T.tolist()} <= {(0, 1), (1, 0), (1, 1)}
    assert costs[rows, columns].sum() == pytest.approx(cheapest_path(costs))


def test_costs_go_from_zero_to_one_in_every_row():
    random = np.random.default_rng(0)
    costs = cost_table(random.normal(size=(4, 6)), random.normal(size=(9, 6)))
    assert np.allclose(costs.min(1), 0) and np.allclose(costs.max(1), 1)


def test_a_query_is_found_in_the_documents_that_have_it():
    random = np.random.default_rng(0)
    query = random.normal(size=(12, 8))
    documents = [random.normal(size=(60, 8)) for _ in range(20)]
    documents[3] = np.concatenate([documents[3], query + random.normal(0, 0.2, query.shape), documents[3]])
    documents[7][10:34:2] = documents[7][11:35:2] = query  # twice as slow
    scores = match(query, documents)
    assert set(np.argsort(-scores)[:2]) == {3, 7} and scores.mean() == pytest.approx(0, abs=1e-9)


def test_a_short_query_matches_nothing():
    assert not match(np.ones((4, 3)), [np.ones((9, 3))]).any()


@pytest.mark.parametrize("seed", range(15))
def test_the_maximum_is_that_of_every_threshold_tried_in_turn(seed):
    random = np.random.default_rng(seed)
    queries, documents = 5, 40
    is_match = random.random((queries, documents)) < 0.1
    is_match[0] = False  # a query without a match is not counted
    is_match[1, 0] = True
    scores = np.round(random.normal(0, 1, (queries, documents)) + 4 * is_match, 1)
    best = 0.0
    for threshold in sorted(set(scores.ravel())):
        values = []
        for own, wanted in zip(scores, is_match, strict=True):
            if wanted.any():
                missed, alarms = (own[wanted] < threshold).mean(), (own[~wanted] >= threshold).mean()
                values.append(1 - missed - BETA * alarms)
        best = max(best, float(np.mean(values)))
    found, _ = term_weighted_value(scores.ravel(), is_match.ravel(), np.repeat(np.arange(queries), documents))
    assert found == pytest.approx(best)


def test_beta_is_that_of_quesst_2014():
    assert pytest.approx(12.49) == BETA

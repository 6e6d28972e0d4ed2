import math

import numpy as np
import pytest
from scipy.optimize import isotonic_regression, minimize

from attune.errors import DataError
from attune.scoring.calibration import (
    cllr,
    expected_calibration_error,
    fit_fusion,
    isotonic,
    min_cllr,
    reliability,
)


def trials(count=300, seed=0):
    random = np.random.default_rng(seed)
    is_target = random.random(count) < 0.3
    scores = np.column_stack(
        [2 * is_target + random.normal(size=count), 10 * is_target + 20 * random.normal(size=count)]
    )
    return scores, is_target


@pytest.mark.parametrize("prior", [0.5, 0.05])
def test_the_fusion_is_the_optimum_that_another_optimizer_finds(prior):
    scores, is_target = trials()

    def objective(found):
        ratios = scores @ found[:2] + found[2] + math.log(prior / (1 - prior))
        return (
            prior * np.logaddexp(0, -ratios[is_target]).mean()
            + (1 - prior) * np.logaddexp(0, ratios[~is_target]).mean()
        )

    theirs = minimize(objective, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    ours = fit_fusion(scores, is_target, prior)
    assert objective(np.array([*ours.weights, ours.offset])) == pytest.approx(theirs.fun, abs=1e-6)
    assert [*ours.weights, ours.offset] == pytest.approx(theirs.x, rel=1e-2, abs=1e-3)


def test_calibration_lowers_the_cost_and_fusion_lowers_it_further():
    scores, is_target = trials(2000)
    alone = fit_fusion(scores[:, :1], is_target).apply(scores[:, :1])
    fused = fit_fusion(scores, is_target).apply(scores)
    assert cllr(fused, is_target) < cllr(alone, is_target) < cllr(scores[:, 0], is_target) + 0.2
    assert min_cllr(fused, is_target) <= cllr(fused, is_target) <= 1


def test_cllr_by_hand():
    ratios, is_target = np.array([math.log(3), -math.log(3)]), np.array([True, False])
    assert cllr(ratios, is_target) == pytest.approx(math.log2(4 / 3))
    assert cllr(np.zeros(4), np.array([True, False, True, False])) == pytest.approx(1.0)
    assert min_cllr(np.array([3.0, 1.0]), is_target) == pytest.approx(0.0)
    assert math.isnan(cllr(ratios, np.array([True, True])))


def test_isotonic_regression_is_that_of_scipy():
    scores, is_target = trials(200, seed=3)
    order = np.argsort(scores[:, 0])
    theirs = isotonic_regression(is_target[order].astype(float)).x
    assert isotonic(scores[:, 0], is_target)[order] == pytest.approx(theirs)
    assert isotonic(np.array([1.0, 1.0]), np.array([True, False])).tolist() == [0.5, 0.5]


def test_trials_that_can_be_told_apart_exactly_have_finite_weights():
    fusion = fit_fusion(np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([False, False, True, True]))
    assert all(map(math.isfinite, (*fusion.weights, fusion.offset)))
    with pytest.raises(DataError, match="both kinds"):
        fit_fusion(np.zeros((2, 1)), np.array([True, True]))


def test_expected_calibration_error_by_hand():
    confidences, is_right = np.array([0.95, 0.95, 0.55, 1.0]), np.array([True, False, True, True])
    bins = reliability(confidences, is_right, 10)
    assert [(each.count, each.accuracy) for each in bins] == [(1, 1.0), (3, pytest.approx(2 / 3))]
    assert expected_calibration_error(confidences, is_right, 10) == pytest.approx(
        100 * (0.25 * 0.45 + 0.75 * abs(2.9 / 3 - 2 / 3))
    )

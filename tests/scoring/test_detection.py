import numpy as np
import pytest

from attune.scoring.detection import Trials, equal_error_rate, min_detection_cost, score_trials

CASES = [(seed, size, ties) for seed in range(6) for size in (20, 400) for ties in (False, True)]


def random_trials(seed, size, ties):
    random = np.random.default_rng(seed)
    is_target = random.random(size) < 0.3
    is_target[:2] = True, False
    scores = random.normal(0, 1, size) + 1.5 * is_target
    return np.round(scores, 1) if ties else scores, is_target


def curve(scores, is_target):
    return Trials.of(scores, is_target).rates(np.arange(len(scores)))


@pytest.mark.parametrize(("seed", "size", "ties"), CASES)
def test_rates_and_costs_are_those_of_every_threshold_tried_in_turn(seed, size, ties):
    scores, is_target = random_trials(seed, size, ties)
    thresholds = [np.inf, *sorted(set(scores), reverse=True)]
    accepts = np.array([(scores[~is_target] >= each).mean() for each in thresholds])
    rejects = np.array([(scores[is_target] < each).mean() for each in thresholds])
    found = curve(scores, is_target)
    assert np.allclose(found, (accepts, rejects))
    cost = min(0.01 * reject + 0.99 * accept for accept, reject in zip(accepts, rejects, strict=True)) / 0.01
    assert min_detection_cost(*found) == pytest.approx(cost)


@pytest.mark.parametrize(("seed", "size", "ties"), CASES)
def test_eer_is_the_root_of_the_interpolated_roc(seed, size, ties):
    """Bisection of 1 - x - ROC(x), which is how SUPERB has it."""
    scores, is_target = random_trials(seed, size, ties)
    accepts, rejects = curve(scores, is_target)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        roc = np.interp(middle, accepts, 1 - rejects)
        low, high = (middle, high) if 1 - middle - roc > 0 else (low, middle)
    assert equal_error_rate(accepts, rejects) == pytest.approx(100 * low, abs=1e-6)


def test_eer_and_cost_equal_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    optimize, interpolate = pytest.importorskip("scipy.optimize"), pytest.importorskip("scipy.interpolate")
    for seed in range(20):
        scores, is_target = random_trials(seed, 500, seed % 2 == 0)
        accepts, hits, _ = metrics.roc_curve(is_target, scores)
        root = optimize.brentq(lambda x, roc=interpolate.interp1d(accepts, hits): 1 - x - roc(x), 0.0, 1.0)
        found = curve(scores, is_target)
        assert equal_error_rate(*found) == pytest.approx(100 * root, abs=1e-6)
        assert min_detection_cost(*found) == pytest.approx(min(0.01 * (1 - hits) + 0.99 * accepts) / 0.01)


def test_perfect_and_useless_detectors():
    names = [str(trial) for trial in range(8)]
    labels = [True] * 4 + [False] * 4
    assert score_trials([1.0] * 4 + [0.0] * 4, labels, names)["eer"].value == 0
    constant = score_trials([0.0] * 8, labels, names)
    assert (constant["eer"].value, constant["min_dcf"].value) == (50, 1)


def test_without_both_kinds_of_trials_there_is_no_rate():
    assert np.isnan(score_trials([0.1, 0.2], [True, True], ["a", "b"])["eer"].value)
    assert np.isnan(score_trials([], [], [])["eer"].value)


@pytest.mark.parametrize(("seed", "size", "ties"), CASES)
def test_at_the_threshold_of_the_eer_both_rates_are_as_near_as_at_any_score(seed, size, ties):
    scores, is_target = random_trials(seed, size, ties)

    def gap(threshold):
        return (scores[is_target] < threshold).mean() - (scores[~is_target] >= threshold).mean()

    threshold = Trials.of(scores, is_target).eer_threshold(scores)
    assert threshold in scores
    assert gap(threshold) <= 0 < min((gap(each) for each in scores if each > threshold), default=1)

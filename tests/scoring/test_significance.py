"""Significance: equal to exact enumeration, to scipy, and to a count by hand."""

from itertools import product

import numpy as np
import pytest

from attune.scoring.bleu import paired_bleu
from attune.scoring.significance import holm, mapsswe, mcnemar, paired_bootstrap, speaker_weights, stretches


def enumerated(first, second, sizes):
    """The bootstrap over every possible resample, each as probable as any other."""
    rows = np.array(list(product(range(len(sizes)), repeat=len(sizes))))
    return 100 * (second - first)[rows].sum(axis=1) / sizes[rows].sum(axis=1)


@pytest.mark.parametrize("second", [[1, 0, 2, 0, 1], [3, 1, 2, 2, 4], [0, 2, 1, 3, 0]])
def test_the_bootstrap_is_that_of_all_resamples(second):
    first, second, sizes = np.array([2, 1, 2, 0, 3]), np.array(second), np.array([5, 4, 6, 3, 7])
    exact = enumerated(first, second, sizes)
    found = paired_bootstrap(first, second, sizes, resamples=40_000)
    assert found.value == pytest.approx(100 * (second - first).sum() / sizes.sum())
    assert found.p == pytest.approx(min(1, 2 * min((exact <= 0).mean(), (exact >= 0).mean())), abs=0.012)
    for bound, part in ((found.low, 0.025), (found.high, 0.975)):  # a few values have all the weight
        assert (exact < bound).mean() - 0.005 < part < (exact <= bound).mean() + 0.005


def test_a_system_is_not_better_than_itself():
    errors, sizes = np.array([1, 0, 4, 2]), np.array([5, 5, 5, 5])
    assert paired_bootstrap(errors, errors, sizes) == (0, 0, 0, 1)


def test_many_utterances_give_what_fewer_blocks_give():
    random = np.random.default_rng(3)
    first, sizes = random.binomial(10, 0.20, 5000), np.full(5000, 10)
    second = random.binomial(10, 0.19, 5000)
    found = paired_bootstrap(first, second, sizes)
    error = 100 * (second - first).std() / 10 / np.sqrt(5000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.08)


def test_mcnemar_is_the_exact_binomial_test():
    stats = pytest.importorskip("scipy.stats")
    for one, other in [(0, 0), (3, 0), (5, 9), (40, 60), (400, 460), (20_000, 20_300)]:
        exact = stats.binomtest(one, one + other).pvalue if one + other else 1.0
        assert mcnemar(one, other) == pytest.approx(exact, rel=1e-6)


def test_mapsswe_is_the_normal_test_of_the_stretches():
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(5)
    segments = [tuple(map(int, pair)) for pair in random.poisson((1.2, 0.9), (200, 2)) if pair.any()]
    differences = np.array([one - other for one, other in segments])
    statistic = differences.mean() / (differences.std(ddof=1) / np.sqrt(len(differences)))
    assert mapsswe(segments) == pytest.approx(2 * stats.norm.sf(abs(statistic)))
    assert mapsswe([(1, 1), (2, 2)]) == 1.0


@pytest.mark.parametrize("count", [2, 5, 12])
def test_mapsswe_of_stretches_that_all_differ_alike_is_the_sign_test(count):
    """One system has a few single errors, the other none: two such words are no evidence."""
    assert mapsswe([(1, 0)] * count) == pytest.approx(mcnemar(count, 0))


def test_stretches_end_where_both_have_two_words_right():
    #        insertion, word, insertion, word …: errors at words 0 and 1, two good words, one insertion, one word
    slots = [(0, 0), (1, 0), (0, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0), (2, 0), (0, 0), (0, 0)]
    assert list(stretches(slots)) == [(1, 1), (2, 0)]
    one_good_word = [(0, 0), (1, 0), (0, 0), (0, 0), (0, 0), (0, 1), (0, 0)]
    assert list(stretches(one_good_word)) == [(1, 1)]
    assert list(stretches([(0, 0), (0, 0), (0, 0)])) == []


def test_a_trial_between_two_speakers_is_drawn_as_often_as_both_are_and_one_within_a_speaker_as_that_speaker():
    draw, random = speaker_weights([("a", "a"), ("b", "b"), ("b", "a")]), np.random.default_rng(3)
    drawn = [tuple(draw(random).tolist()) for _ in range(50)]
    assert {*drawn} == {(2, 0, 0), (1, 1, 1), (0, 2, 0)}


def test_holm_corrects_step_by_step():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def test_one_utterance_shows_nothing():
    assert paired_bootstrap(np.array([3]), np.array([0]), np.array([5])).p == 1
    assert paired_bleu(["a b c d e"], ["a b c d e"], ["a b c d x"]).p == 1

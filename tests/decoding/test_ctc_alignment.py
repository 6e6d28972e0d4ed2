import itertools
import math

import pytest
import torch

from attune.decoding import ctc
from attune.decoding.ctc_alignment import FOREIGN_COST, ForcedTokens, align
from attune.scorers import CtcScorer


def scorer_of(*lengths, vocabulary=4, seed=0):
    logits = torch.randn(len(lengths), max(lengths), vocabulary, generator=torch.Generator().manual_seed(seed))
    return CtcScorer(logits.mul(2).log_softmax(-1), torch.tensor(lengths))


def collapsed(path):
    return tuple(token for token, _ in itertools.groupby(path) if token)


def best_by_enumeration(log_probs, tokens):
    paths = itertools.product(range(log_probs.shape[1]), repeat=len(log_probs))
    scores = [
        sum(float(row[each]) for row, each in zip(log_probs, path, strict=True))
        for path in paths
        if collapsed(path) == tokens
    ]
    return max(scores, default=-math.inf)


@pytest.mark.parametrize("tokens", [(), (1,), (1, 1), (2, 1, 2), (3, 3, 1), (1, 2, 3, 1)])
def test_the_path_is_the_best_of_all_paths(tokens):
    scorer = scorer_of(6)
    (found,) = align(scorer, [ForcedTokens(tokens)])
    assert found.tokens == tokens
    assert found.score == pytest.approx(best_by_enumeration(scorer.log_probs[0], tokens), abs=1e-5)
    assert all(start < end for start, end in zip(found.frames, found.ends, strict=True))
    assert list(found.frames) == sorted(found.frames)


def test_a_row_does_not_depend_on_its_batch():
    together = scorer_of(9, 5, 7)
    rows = [ForcedTokens((1, 2, 3)), ForcedTokens((2, 2)), ForcedTokens((3,))]
    found = align(together, rows)
    for number, row in enumerate(rows):
        length = int(together.lengths[number])
        alone = CtcScorer(together.log_probs[number : number + 1, :length], torch.tensor([length]))
        assert align(alone, [row])[0] == found[number]


def test_audio_that_is_too_short_for_the_tokens_has_no_alignment():
    assert align(scorer_of(2), [ForcedTokens((1, 1))]) == [None]  # a blank would have to be between them
    assert align(scorer_of(3), [ForcedTokens((1, 1))])[0].tokens == (1, 1)


def test_tokens_that_may_stop_end_where_the_audio_does():
    log_probs = torch.full((1, 4, 4), -9.0)
    for frame, token in enumerate((1, 0, 2, 2)):
        log_probs[0, frame, token] = -0.01
    scorer = CtcScorer(log_probs, torch.tensor([4]))
    (stopped,) = align(scorer, [ForcedTokens((1, 2, 3, 1), may_stop=True)])
    assert stopped.tokens == (1, 2) and stopped.frames == (0, 2) and stopped.ends == (1, 4)
    assert align(scorer, [ForcedTokens((1, 2, 3, 1))])[0].tokens == (1, 2, 3, 1)


def test_speech_that_the_text_does_not_have_is_passed_over_between_words():
    log_probs = torch.full((1, 7, 4), -20.0)
    for frame, token in enumerate((1, 3, 3, 3, 0, 2, 2)):
        log_probs[0, frame, token] = -0.01
    scorer = CtcScorer(log_probs, torch.tensor([7]))
    (found,) = align(scorer, [ForcedTokens((1, 2), word_starts=frozenset({0, 1}))])
    assert found.frames == (0, 5) and min(found.confidences) > 0.9
    assert found.score == pytest.approx(-0.07 - 3 * FOREIGN_COST, abs=1e-4)


def test_greedy_tokens_have_the_frames_they_were_best_in():
    log_probs = torch.full((1, 6, 3), -9.0)
    for frame, token in enumerate((0, 1, 1, 2, 0, 1)):
        log_probs[0, frame, token] = math.log(0.5)
    (found,) = ctc.greedy(CtcScorer(log_probs, torch.tensor([6])))
    assert (found.tokens, found.frames, found.ends) == ((1, 2, 1), (1, 3, 5), (3, 4, 6))
    assert found.confidences == pytest.approx((0.5, 0.5, 0.5))


def test_a_row_without_frames_has_no_alignment_but_that_of_nothing():
    scorer = CtcScorer(torch.randn(2, 3, 5).log_softmax(-1), torch.tensor([0, 0]))
    none, nothing = align(scorer, [ForcedTokens((1,)), ForcedTokens(())])
    assert none is None and nothing is not None and nothing.tokens == ()

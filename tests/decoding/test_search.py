import math
from dataclasses import replace

import pytest
import torch

from attune.decoding.search import Search, search
from attune.decoding.transducer_beam import Beam, beam_search
from attune.errors import ModelError
from attune.types import CtcScorer, Hypothesis, LabelScorer

from transducers import random_frames, random_transducer


def test_settings_choose_the_search():
    scorer = CtcScorer(torch.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log(), torch.tensor([2]))
    assert search(scorer, Search("greedy"))[0].tokens == ()
    assert search(scorer, Search("beam", beam=2))[0].tokens == (1,)


@pytest.mark.parametrize("settings", [Search("greedy"), Search("beam", beam=3)])
def test_labels_have_one_best_answer_however_it_is_looked_for(settings):
    scorer = LabelScorer(torch.tensor([[-2.0, -0.5, -1.5], [-0.25, -4.0, -4.0]]))
    assert search(scorer, settings) == [Hypothesis((1,), -0.5), Hypothesis((0,), -0.25)]


class TokenTable:
    """Scores that only depend on the token before: 0 ends, 1 starts."""

    device = torch.device("cpu")
    end = 0
    prefixes = ((1,),)
    limits = (5,)
    filters = ()

    def __init__(self, probabilities):
        self.log_probs = torch.tensor(probabilities).log()

    def advance(self, tokens):
        return self.log_probs[tokens[:, -1]]

    def select(self, rows):
        pass


# The likelier first token, 2, leaves everything open; after 3 it can only end.
TOKENS = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.6, 0.4], [0.4, 0.0, 0.3, 0.3], [1.0, 0.0, 0.0, 0.0]]


def test_tokens_are_searched_one_by_one_or_by_a_beam():
    (found,) = search(TokenTable(TOKENS), Search("greedy"))
    assert found == Hypothesis((2,), pytest.approx(math.log(0.24)), filtered_log_prob=pytest.approx(math.log(0.24)))
    (found,) = search(TokenTable(TOKENS), Search("beam", beam=2))
    assert found == Hypothesis((3,), pytest.approx(math.log(0.4)), filtered_log_prob=pytest.approx(math.log(0.4)))


def test_a_beams_hypotheses_are_compared_by_their_score_per_token_or_by_the_score_alone():
    certain_once_begun = [[1.0, 0.0, 0.0, 0.0], [0.45, 0.0, 0.35, 0.2], [0.1, 0.0, 0.0, 0.9], [0.9, 0.0, 0.1, 0.0]]
    assert search(TokenTable(certain_once_begun), Search("beam", 3))[0].tokens == (2, 3)
    assert search(TokenTable(certain_once_begun), Search("beam", 3, length_power=0.0))[0].tokens == ()


def test_a_beam_keeps_as_many_alternatives_as_it_is_asked_for():
    (found,) = search(TokenTable(TOKENS), Search("beam", beam=3, alternatives=3))
    assert found.tokens == (3,) and len(found.nbest) == 2
    assert search(TokenTable(TOKENS), Search("beam", beam=3))[0] == replace(found, nbest=())
    transducer = random_transducer(seed=3).scorer(random_frames((6, 9)))
    every = beam_search(transducer, Beam(4))
    found = search(transducer, Search("beam", beam=4, alternatives=3))
    assert [(each.tokens, *(other.tokens for other in each.nbest)) for each in found] == [
        tuple(each.tokens for each in ranked[:3]) for ranked in every
    ]
    with pytest.raises(ModelError, match="keeps no alternatives"):
        search(CtcScorer(torch.zeros(1, 2, 2), torch.tensor([2])), Search("beam", alternatives=2))


@pytest.mark.parametrize("settings", [Search("greedy"), Search("beam", beam=2)])
def test_a_token_model_that_diverged_is_named_too(settings):
    with pytest.raises(ModelError, match="NaN"):
        search(TokenTable([[torch.nan] * 4] * 4), settings)


def test_a_model_that_diverged_is_named_instead_of_searched():
    with pytest.raises(ModelError, match="NaN"):
        search(CtcScorer(torch.full((1, 3, 4), torch.nan), torch.tensor([3])), Search("beam"))

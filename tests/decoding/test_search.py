import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from attune.decoding.fusion import Fusion
from attune.decoding.search import Search, require_usable, search
from attune.decoding.settings import USES, SearchConfig
from attune.decoding.transducer_beam import Beam, beam_search
from attune.errors import ModelError
from attune.scorers import kind_of
from attune.types import (
    ActivityScorer,
    CtcScorer,
    Embedding,
    EmbeddingScorer,
    Hypothesis,
    LabelScorer,
    Likelihood,
    LikelihoodScorer,
    WaveformScorer,
)

from toy.language_models import random_bigrams
from transducers import random_frames, random_transducer


def test_settings_choose_the_search():
    scorer = CtcScorer(torch.tensor([[[0.6, 0.4], [0.6, 0.4]]]).log(), torch.tensor([2]))
    assert search(scorer, Search("greedy"))[0].tokens == ()
    assert search(scorer, Search("beam", beam=2))[0].tokens == (1,)


def test_the_most_probable_label_is_taken():
    scorer = LabelScorer(torch.tensor([[-2.0, -0.5, -1.5], [-0.25, -4.0, -4.0]]))
    assert search(scorer, Search()) == [Hypothesis((1,), -0.5), Hypothesis((0,), -0.25)]


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
    assert search(TokenTable(certain_once_begun), Search("beam", 3, length_power=1.0))[0].tokens == (2, 3)
    assert search(TokenTable(certain_once_begun), Search("beam", 3, length_power=0.0))[0].tokens == ()


def test_a_beam_that_is_left_alone_does_not_prefer_a_loop_to_a_word():
    scorer = TokenTable([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.6, 0.4], [0.4, 0.0, 0.3, 0.3], [0.12, 0.0, 0.0, 0.88]])
    scorer.limits = [30]
    assert search(scorer, Search("beam", 2, length_power=1.0))[0].tokens[-4:] == (3, 3, 3, 3)
    assert search(scorer, Search("beam", 2))[0].tokens == (2,)


def test_a_beam_that_is_left_alone_prefers_a_word_to_a_less_probable_phrase():
    # 2 ends; 3, 4, 5 is a phrase. By score / length ** 0.3 the phrase would win: 1.444 / 4 ** 0.3 < 1.204 / 2 ** 0.3.
    follows = {1: {2: 0.3, 3: 0.236}, 2: {0: 1.0}, 3: {4: 1.0}, 4: {5: 1.0}, 5: {0: 1.0}}
    scorer = TokenTable([[follows.get(last, {}).get(token, 0.0) for token in range(6)] for last in range(6)])
    assert search(scorer, Search("beam", 2))[0].tokens == (2,)
    assert search(scorer, Search("beam", 2, length_power=0.3))[0].tokens == (3, 4, 5)


def test_a_beam_keeps_as_many_hypotheses_as_nbest_asks_for():
    (found,) = search(TokenTable(TOKENS), Search("beam", beam=3, nbest=3))
    assert found.tokens == (3,) and len(found.nbest) == 2
    assert search(TokenTable(TOKENS), Search("beam", beam=3))[0] == replace(found, nbest=(), parts=())
    transducer = random_transducer(seed=3).scorer(random_frames((6, 9)))
    every = beam_search(transducer, Beam(4))
    found = search(transducer, Search("beam", beam=4, nbest=3))
    assert [(each.tokens, *(other.tokens for other in each.nbest)) for each in found] == [
        tuple(each.tokens for each in ranked[:3]) for ranked in every
    ]


@pytest.mark.parametrize("settings", [Search("greedy"), Search("beam", beam=2)])
def test_a_token_model_that_diverged_is_named_too(settings):
    with pytest.raises(ModelError, match="NaN"):
        search(TokenTable([[torch.nan] * 4] * 4), settings)


def test_a_model_that_diverged_is_named_instead_of_searched():
    with pytest.raises(ModelError, match="NaN"):
        search(CtcScorer(torch.full((1, 3, 4), torch.nan), torch.tensor([3])), Search("beam"))


def test_an_embedding_is_the_vector_of_each_utterance():
    found = search(EmbeddingScorer(torch.tensor([[1.0, -0.5], [0.25, 2.0]])), Search())
    assert found == [Embedding((1.0, -0.5)), Embedding((0.25, 2.0))]


def test_an_activity_is_cut_to_the_utterances_own_frames():
    log_odds = torch.tensor([[[0.0, 1.0], [math.log(3), -torch.inf], [5.0, 5.0]], [[1.0, 1.0]] * 3])
    first, second = search(ActivityScorer(log_odds.bfloat16(), torch.tensor([2, 3]), 0.02), Search())
    assert first.frames.dtype == np.float32 and first.frames.shape == (2, 2) and second.frames.shape == (3, 2)
    assert first.frames.ravel() == pytest.approx([0.5, 0.731, 0.75, 0.0], abs=2e-3)
    assert first.seconds_per_frame == 0.02 and first.score is None


@pytest.mark.parametrize("shape", [(2, 100), (2, 3, 100)])
def test_a_waveform_is_cut_to_the_utterances_own_samples(shape):
    audio = torch.randn(shape)
    first, second = search(WaveformScorer(audio, torch.tensor([70, 100])), Search())
    assert np.array_equal(first.samples, audio[0, ..., :70].numpy()) and first.samples.dtype == np.float32
    assert np.array_equal(second.samples, audio[1].numpy()) and second.rate == 16_000


def test_a_likelihood_has_its_log_probability_and_its_tokens():
    found = search(LikelihoodScorer(torch.tensor([-2.5, -8.0]), torch.tensor([2, 7])), Search())
    assert found == [Likelihood(-2.5, 2), Likelihood(-8.0, 7)]
    assert [each.score for each in found] == [-2.5, -8.0]


NAN = torch.tensor([[0.0, torch.nan, 0.0]])
SCORERS = {
    "ctc": CtcScorer(NAN[..., None], torch.tensor([3])),
    "label": LabelScorer(NAN),
    "embedding": EmbeddingScorer(NAN),
    "activity": ActivityScorer(NAN[..., None], torch.tensor([3]), 0.02),
    "waveform": WaveformScorer(NAN, torch.tensor([3])),
    "likelihood": LikelihoodScorer(NAN[0], torch.tensor([1, 1, 1])),
    "tokens": TokenTable([[torch.nan] * 4] * 4),
    "transducer": random_transducer().scorer(random_frames((3,))),
}


@pytest.mark.parametrize("kind", SCORERS)
def test_every_scorer_has_a_kind(kind):
    assert kind_of(SCORERS[kind]) == kind
    with pytest.raises(TypeError, match="returned dict, which is not a scorer"):
        kind_of({})


@pytest.mark.parametrize("kind", [kind for kind in SCORERS if kind != "transducer"])
def test_scores_that_are_nan_are_named_whatever_the_kind(kind):
    with pytest.raises(ModelError, match="NaN"):
        search(SCORERS[kind], Search())


def test_nan_beyond_an_utterances_own_length_is_padding():
    assert len(search(ActivityScorer(NAN[..., None], torch.tensor([1]), 0.02), Search())) == 1
    assert len(search(WaveformScorer(NAN, torch.tensor([1])), Search())) == 1


FUSION = Fusion(random_bigrams(4), 0.3)
WITHOUT_BEAM = ("label", "embedding", "activity", "waveform", "likelihood")


WITH_BEAM = ("ctc", "tokens", "transducer")


@pytest.mark.parametrize(
    ("settings", "kinds", "message"),
    [
        (Search("beam"), WITHOUT_BEAM, "decode.search=beam does not work with a"),
        (Search(fallback=True), ("ctc", "transducer", *WITHOUT_BEAM), "decode.fallback=True is not used by the greedy"),
        (Search("beam", length_power=0.5), ("ctc", *WITHOUT_BEAM), "decode.length_power=0.5 is not used by the beam"),
        (Search(nbest=3), WITH_BEAM, "nbest=3 is not used by the greedy .*Set decode.search=beam"),
        (Search("beam", 4), WITHOUT_BEAM, "decode.beam=4 is not used by the beam search of a"),
        (Search("beam", 201), ("tokens", "transducer"), "decode.beam=201 is too wide for a.* Use at most 200"),
        (Search("greedy", 4), WITH_BEAM, "decode.beam=4 is not used by the greedy .*Set decode.search=beam"),
        (Search(length_power=0.5), ("ctc",), "decode.length_power=0.5 is not used .* CTC model. Remove it"),
        (Search(length_power=0.5), ("tokens", "transducer"), "decode.length_power=0.5 .*Set decode.search=beam"),
        (Search(fusion=FUSION, lm="x.arpa"), WITHOUT_BEAM, "decode.lm=x.arpa is not used .*Remove it"),
        (Search(fusion=FUSION, lm="x.arpa"), WITH_BEAM, "decode.lm=x.arpa is not used .*Set decode.search=beam"),
    ],
)
def test_settings_that_a_search_does_not_use_are_refused(settings, kinds, message):
    for kind in kinds:
        with pytest.raises(ModelError, match=message):
            require_usable(settings, kind)
        with pytest.raises(ModelError, match=message):
            search(SCORERS[kind], settings)


def test_settings_that_a_search_uses_are_taken():
    for kind in SCORERS:
        require_usable(Search(precision="bf16"), kind)
    for kind in WITH_BEAM:
        require_usable(Search("beam", 3, fusion=FUSION), kind)
    require_usable(Search("beam", 10_000), "ctc")
    for kind in ("tokens", "transducer"):
        require_usable(Search("beam", length_power=0.0, nbest=4), kind)
    for name in ("greedy", "beam"):
        require_usable(Search(name, fallback=True), "tokens")
    require_usable(Search("beam", length_power=1.0), "ctc")  # the former default, in an older run's recipe


def test_the_table_names_settings_that_there_are():
    known = {each.name for each in fields(SearchConfig)} | {"nbest"}
    assert all({*names} <= known for names in USES.values())


def test_all_that_is_wrong_is_named_at_once():
    with pytest.raises(ModelError, match=r"decode\.search=beam.*decode\.fallback.*decode\.lm"):
        require_usable(Search("beam", fallback=True, fusion=FUSION), "label")

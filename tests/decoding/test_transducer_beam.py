import itertools
from dataclasses import replace

import pytest
import torch

from attune.decoding import transducer
from attune.decoding._phrase_tree import TokenTexts
from attune.decoding.fusion import Fusion
from attune.decoding.phrases import PhraseBook
from attune.decoding.search import Search, search
from attune.decoding.transducer import greedy
from attune.decoding.transducer_beam import Beam, beam_search

from toy.language_models import Bigrams, random_bigrams
from transducers import GOLDEN, golden, random_frames, random_transducer, seeds, totals

KINDS = {"rnnt": (), "tdt": (0, 1, 2, 4), "tdt without 0": (1, 3)}
LENGTHS = [17, 1, 0, 30, 5, 12]


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.inference_mode():
        yield


def same(found, expected):
    assert [(each.tokens, each.frames) for each in found] == [(each.tokens, each.frames) for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], abs=1e-4)
    for one, other in zip(found, expected, strict=True):
        assert one.confidences == pytest.approx(other.confidences, abs=1e-5)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_best_hypotheses_are_those_of_nemos_malsd(name):
    model = golden(name)
    alone = [beam_search(model.model.scorer([frames]), Beam(4))[0] for frames in model.frames]
    together = beam_search(model.model.scorer(model.frames), Beam(4))
    backwards = beam_search(model.model.scorer(model.frames[::-1]), Beam(4))[::-1]
    for found in (alone, together, backwards):
        for hypotheses, clip in zip(found, model.clips, strict=True):
            assert list(hypotheses[0].tokens) == clip["beam"]["malsd_batch"][0]["ids"]


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.endswith("tdt")])
def test_all_that_nemo_finds_is_found_with_its_scores(name):
    # A TDT model's hypotheses may end beyond the last frame; those of the same labels are one here, and apart there.
    model = golden(name)
    for hypotheses, clip in zip(beam_search(model.model.scorer(model.frames), Beam(4)), model.clips, strict=True):
        expected = clip["beam"]["malsd_batch"]
        assert [list(each.tokens) for each in hypotheses] == [each["ids"] for each in expected]
        assert [each.score for each in hypotheses] == pytest.approx([each["score"] for each in expected], rel=1e-5)


def test_of_a_tdt_model_no_less_is_found_and_nothing_twice():
    model = golden("fastconformer-tdt")
    for hypotheses, clip in zip(beam_search(model.model.scorer(model.frames), Beam(4)), model.clips, strict=True):
        assert len({each.tokens for each in hypotheses}) == len(hypotheses)
        assert hypotheses[0].score >= clip["beam"]["malsd_batch"][0]["score"] - 1e-4


@pytest.mark.parametrize(
    ("durations", "length", "max_labels"),
    [((), 1, 2), ((), 3, 3), ((), 4, 2), ((0, 1), 2, 2), ((0, 1, 2), 2, 2), ((1, 2), 4, 4)],
)
@pytest.mark.parametrize("seed", seeds(3, quick=1))
def test_a_beam_wide_enough_finds_every_sequence_with_its_whole_probability(durations, length, max_labels, seed):
    model = random_transducer(tokens=3, durations=durations, seed=seed, sharpness=1.5)
    scorer = model.scorer(random_frames([length], seed))
    # Longer ones may come to the limit in a frame, which an equal one that was merged into it had not yet.
    expected = {labels: total for labels, total in totals(scorer, max_labels).items() if len(labels) <= max_labels}
    (found,) = beam_search(scorer, Beam(700, length_power=0.0, max_labels=max_labels))
    short = {each.tokens: each.score for each in found if len(each.tokens) <= max_labels}
    assert short == pytest.approx(expected, abs=2e-5)
    assert next(iter(short)) == max(expected, key=expected.get)


@pytest.mark.parametrize("durations", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("seed", seeds(4, quick=2))
def test_neighbours_and_their_order_change_nothing(durations, seed):
    model = random_transducer(durations=durations, seed=seed, blank_bias=(0.0, 3.0)[seed % 2])
    frames = random_frames(LENGTHS, seed)
    together = beam_search(model.scorer(frames), Beam(4))
    backwards = beam_search(model.scorer(frames[::-1]), Beam(4))[::-1]
    for own, found, again in zip(frames, together, backwards, strict=True):
        (alone,) = beam_search(model.scorer([own]), Beam(4))
        same(found, alone)
        same(again, alone)


@pytest.mark.parametrize("durations", KINDS.values(), ids=KINDS.keys())
def test_fewer_syncs_change_nothing(durations, monkeypatch):
    model, frames = random_transducer(durations=durations, blank_bias=2.0), random_frames(LENGTHS)
    expected = beam_search(model.scorer(frames), Beam(4))
    monkeypatch.setattr(transducer, "steps_between_syncs", lambda device: 7)
    for found, before in zip(beam_search(model.scorer(frames), Beam(4)), expected, strict=True):
        same(found, before)


@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_between_equally_good_ones_the_batch_does_not_decide(durations):
    model = random_transducer(tokens=4, durations=durations)
    for each in (model.output.weight, model.output.bias):
        each.zero_()  # every token and duration is as likely as any other
    frames = random_frames([3, 6, 1, 4])
    together = beam_search(model.scorer(frames), Beam(5))
    for own, found in zip(frames, together, strict=True):
        same(found, beam_search(model.scorer([own]), Beam(5))[0])


@pytest.mark.parametrize("durations", [(), (0, 1)])
def test_labels_in_a_frame_are_limited(durations):
    model = random_transducer(durations=durations, blank_bias=-20.0)
    if durations:
        model.output.bias[-2] += 20.0
    (found,) = beam_search(model.scorer(random_frames([4])), Beam(3, max_labels=2))
    assert max(found[0].frames.count(frame) for frame in range(4)) == 2


def test_a_wider_beam_finds_what_the_greedy_search_overlooks():
    gains = []
    for seed in range(20):
        model, frames = random_transducer(seed=seed, sharpness=2.0, blank_bias=5.0), random_frames([6, 6, 6], seed)
        wide = beam_search(model.scorer(frames), Beam(16, length_power=0.0))
        for best, found in zip(greedy(model.scorer(frames)), wide, strict=True):
            if all(best.frames.count(frame) < transducer.MAX_LABELS for frame in range(6)):
                gains.append(found[0].score - best.score)
    assert len(gains) > 20 and min(gains) > -1e-4 and max(gains) > 0.5


def test_hypotheses_are_ranked_by_their_score_per_label_or_by_the_score_alone():
    model, frames = golden("conformer").model, golden("conformer").frames[2]
    per_label = beam_search(model.scorer([frames]), Beam(4))[0]
    plain = beam_search(model.scorer([frames]), Beam(4, length_power=0.0))[0]
    assert per_label[0].score < per_label[1].score == plain[0].score


def test_a_language_model_without_weight_changes_nothing():
    model, frames = random_transducer(seed=1, blank_bias=2.0), random_frames(LENGTHS)
    ignorant = Bigrams(torch.full((7, 6), 1 / 5).log())
    plain = beam_search(model.scorer(frames), Beam(4))
    without_weight = beam_search(model.scorer(frames), Beam(4, fusion=Fusion(ignorant, 0.0)))
    for found, expected in zip(without_weight, plain, strict=True):
        same(found, expected)


def test_a_language_model_decides_between_what_sounds_alike():
    model, frames = random_transducer(tokens=4, seed=2, sharpness=1.0), random_frames([5, 8, 3], 2)
    for favourite in range(3):
        probabilities = torch.full((5, 4), 0.01)
        probabilities[:, favourite] = 0.97
        beam = Beam(6, fusion=Fusion(Bigrams(probabilities.log()), 3.0))
        found = beam_search(model.scorer(frames), beam)
        assert {token for hypotheses in found for token in hypotheses[0].tokens} == {favourite}


def scores_along(scorer, labels, lm, weight):
    """The transducer's and the fused score of labels in the only frame, whose blank is the last token."""
    own = fused = 0.0
    before, blank = len(lm.log_probs) - 1, scorer.blank
    predicted, states = scorer.start(1)
    for label in (*labels, blank):
        log_probs = scorer.join(torch.tensor([0]), torch.tensor([0]), predicted)[0][0].double()
        own += float(log_probs[label])
        if label == blank:
            return own, fused + float((1 + weight) * log_probs[blank])
        fused += float(log_probs[label] + weight * (lm.log_probs[before, label] + torch.log1p(-log_probs[blank].exp())))
        predicted, states = scorer.predict(torch.tensor([label]), states)
        before = label


class FrameTable:
    """Probabilities that only depend on the frame, of three labels and the blank."""

    device, blank, durations = torch.device("cpu"), 3, ()

    def __init__(self, probabilities):
        self.log_probs = torch.tensor(probabilities).log()
        self.lengths = torch.tensor([len(probabilities)])

    def start(self, rows):
        return torch.zeros(rows, 1), (torch.zeros(rows, 1),)

    def predict(self, labels, states):
        return torch.zeros(len(labels), 1), states

    def join(self, utterances, frames, predicted):
        return self.log_probs[frames], torch.zeros(len(frames), 0)


def test_a_certain_blank_leaves_a_language_model_as_much_to_weigh_as_in_nemo():
    # NeMo takes the probability that a label comes for 0.01 at least; without a bound the first label would be last.
    scorer = FrameTable([[9e-5, 0.0, 1e-5, 0.9999], [0.0, 8e-7, 0.0999992, 0.9]])
    lm = Bigrams(torch.full((4, 3), 1 / 3).log())
    (found,) = beam_search(scorer, Beam(30, length_power=0.0, max_labels=1, fusion=Fusion(lm, 1.0)))
    order = [each.tokens for each in found]
    assert order.index((0,)) < order.index((1,))


@pytest.mark.parametrize("length_power", [0.0, 1.0])
def test_the_fused_score_ranks_and_the_transducers_own_is_reported(length_power):
    model = random_transducer(tokens=3, seed=4, sharpness=1.5)
    scorer = model.scorer(random_frames([1], 4))
    lm = Bigrams(torch.tensor([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0], [0.2, 0.8, 0.0]]).log())
    (found,) = beam_search(scorer, Beam(50, length_power, max_labels=2, fusion=Fusion(lm, 0.5)))
    every = [labels for count in range(3) for labels in itertools.product(range(2), repeat=count)]
    scores = {labels: scores_along(scorer, labels, lm, 0.5) for labels in every}
    ranked = sorted(every, key=lambda labels: -scores[labels][1] / (len(labels) + 1) ** length_power)
    assert [each.tokens for each in found] == ranked
    assert [each.score for each in found] == pytest.approx([scores[labels][0] for labels in ranked], abs=1e-5)
    assert ranked != sorted(every, key=lambda labels: -scores[labels][0] / (len(labels) + 1) ** length_power)


@pytest.mark.parametrize(("durations", "length", "max_labels"), [((), 4, 2), ((0, 1, 2), 2, 2), ((1, 2), 4, 4)])
def test_with_a_language_model_the_score_is_still_the_sum_of_a_sequences_alignments(durations, length, max_labels):
    model = random_transducer(tokens=3, durations=durations, seed=1, sharpness=1.5)
    scorer = model.scorer(random_frames([length], 1))
    expected = {labels: total for labels, total in totals(scorer, max_labels).items() if len(labels) <= max_labels}
    fusion = Fusion(Bigrams(torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.5, 0.5], [0.2, 0.8]]).log()), 0.4)
    (found,) = beam_search(scorer, Beam(700, length_power=0.0, max_labels=max_labels, fusion=fusion))
    short = {each.tokens: each.score for each in found if len(each.tokens) <= max_labels}
    assert short == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("durations", KINDS.values(), ids=KINDS.keys())
def test_with_a_language_model_neighbours_change_nothing(durations):
    model, frames = random_transducer(durations=durations, blank_bias=2.0), random_frames(LENGTHS)
    beam = Beam(4, fusion=Fusion(random_bigrams(6), 0.7))
    for own, found in zip(frames, beam_search(model.scorer(frames), beam), strict=True):
        same(found, beam_search(model.scorer([own]), beam)[0])


def test_settings_choose_the_transducers_search_and_its_language_model():
    model, frames = random_transducer(tokens=4, seed=2, sharpness=1.0), random_frames([5, 8], 2)
    assert search(model.scorer(frames), Search("greedy")) == greedy(model.scorer(frames))
    found = search(model.scorer(frames), Search("beam", beam=3))
    assert found == [best for best, *_ in beam_search(model.scorer(frames), Beam(3))]
    favourite = torch.full((5, 4), 0.01)
    favourite[:, 1] = 0.97
    settings = Search("beam", 3, lm="lm.arpa", fusion=Fusion(Bigrams(favourite.log()), 3.0))
    assert all(set(each.tokens) <= {1} for each in search(model.scorer(frames), settings))
    assert settings.as_json().items() >= {"kind": "beam", "beam": 3, "lm": "lm.arpa", "lm_weight": 3.0}.items()


@pytest.mark.gpu
@pytest.mark.parametrize("durations", KINDS.values(), ids=KINDS.keys())
def test_an_accelerator_finds_what_the_cpu_finds(durations):
    model, frames = random_transducer(durations=durations, blank_bias=2.0), random_frames(LENGTHS)
    on_cpu = beam_search(model.scorer(frames), Beam(4))
    for found, expected in zip(beam_search(model.cuda().scorer(frames), Beam(4)), on_cpu, strict=True):
        assert found[0].tokens == expected[0].tokens
        assert found[0].score == pytest.approx(expected[0].score, abs=1e-2)


@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_phrases_are_found_where_they_are_nearly_as_probable_and_leave_other_texts_alone(durations):
    model = random_transducer(tokens=5, durations=durations, seed=3, sharpness=1.5)
    frames = random_frames([9, 14, 6], 3)
    book = PhraseBook(TokenTexts(("▁a", "b", "▁c", "d")), 2.0)
    plain = [found[0] for found in beam_search(model.scorer(frames), Beam(8))]
    phrases = [("ab",), (), ("cd",)]
    fusion = Fusion(None, phrases=book.booster(phrases, torch.device("cpu")))
    found = beam_search(model.scorer(frames), Beam(8, fusion=fusion))
    same([replace(found[1][0], parts=())], [plain[1]])  # it has no phrases
    for each in found:
        totals = [(one.score + dict(one.parts)["fused"]) / (len(one.tokens) + 1) for one in each]
        assert all(before >= after - 1e-4 for before, after in itertools.pairwise(totals))
    gains = [fusion.of(torch.tensor([0])).parts([each.tokens], None)[0]["phrases"] for each in (found[0][0], plain[0])]
    assert gains[0] >= gains[1]


@pytest.mark.parametrize(
    ("durations", "length", "max_labels"),
    [((), 3, 3), ((), 4, 2), ((0, 1, 2), 2, 2), ((0, 2), 3, 2), ((1, 2), 4, 4), ((1, 3), 5, 5)],
)
@pytest.mark.parametrize("seed", [0, 2])
def test_with_phrases_every_sequence_has_its_whole_probability_and_only_those_with_a_phrase_gain(
    durations, length, max_labels, seed
):
    model = random_transducer(tokens=3, durations=durations, seed=seed, sharpness=1.5)
    scorer = model.scorer(random_frames([length], seed))
    expected = {labels: total for labels, total in totals(scorer, max_labels).items() if len(labels) <= max_labels}
    fusion = Fusion(None, phrases=PhraseBook(TokenTexts(("▁a", "b")), 1.0, ("ab",)).booster([()], torch.device("cpu")))
    (found,) = beam_search(scorer, Beam(700, length_power=0.0, max_labels=max_labels, fusion=fusion))
    short = {each.tokens: each for each in found if len(each.tokens) <= max_labels}
    assert {labels: each.score for labels, each in short.items()} == pytest.approx(expected, abs=2e-5)
    for labels, each in short.items():
        gained, words = dict(each.parts)["fused"], "".join("ab"[token] for token in labels).replace("a", " a").split()
        assert -1e-4 <= gained <= (2.0 if "ab" in words else 0.0) + 1e-4


def test_the_parts_of_a_fused_transducer_beam_add_up_to_its_ranks():
    model, frames = random_transducer(tokens=5, seed=3, sharpness=1.5), random_frames([9, 14], 3)
    book = PhraseBook(TokenTexts(("▁a", "b", "▁c", "d")), 2.0, ("ab", "cd"))
    fusion = Fusion(random_bigrams(5), 0.4, phrases=book.booster([(), ()], torch.device("cpu")))
    for each in search(model.scorer(frames), Search("beam", beam=6, nbest=6, lm="lm", fusion=fusion)):
        parts = [dict(one.parts) for one in (each, *each.nbest)]
        assert all([*own] == ["acoustic", "lm", "phrases", "length"] for own in parts)
        ranks = [sum(own.values()) for own in parts]
        assert ranks == sorted(ranks, reverse=True)
        whole = [sum(own.values()) - own["length"] for own in parts]
        lengths = [len(one.tokens) + 1 for one in (each, *each.nbest)]  # a transducer ranks by the mean
        assert ranks == pytest.approx([total / length for total, length in zip(whole, lengths, strict=True)])

"""CTC prefix scores against brute force over all paths, and joint decoding that does not depend on the batch."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from attune.decoding import tokens
from attune.decoding.ctc_prefix import CtcPrefixes, JointScorer
from attune.decoding.search import Search, search
from attune.decoding.settings import LengthNorm
from attune.scorers import CtcScorer

BLANK = END = 0


def collapse(path):
    return tuple(token for token, _ in itertools.groupby(path) if token != BLANK)


def brute_force(log_probs, prefix):
    """The log-probabilities that the text begins with the prefix, and that it is the prefix."""
    begins = whole = 0.0
    frames, vocabulary = log_probs.shape
    for path in itertools.product(range(vocabulary), repeat=frames):
        text = collapse(path)
        probability = math.exp(sum(float(log_probs[frame, token]) for frame, token in enumerate(path)))
        begins += probability if text[: len(prefix)] == prefix else 0.0
        whole += probability if text == prefix else 0.0
    return begins, whole


def random_log_probs(frames, vocabulary, seed, scale=2.0):
    return (scale * torch.randn(frames, vocabulary, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)


@pytest.mark.parametrize("text", [(1,), (1, 1), (1, 2), (2, 2, 1), (1, 2, 1)])
def test_prefixes_have_the_probability_of_all_their_paths(text):
    log_probs = random_log_probs(5, 3, seed=len(text))
    # Two utterances, the second with padding that must not count.
    padded = torch.stack([log_probs, torch.cat([log_probs[:4], torch.full((1, 3), -0.1)])])
    for number, frames in enumerate((5, 4)):
        ctc = CtcPrefixes(CtcScorer(padded, torch.tensor([5, 4])), END)
        for place in range(len(text) + 1):
            found = ctc.log_probs()[number].double().exp()
            begins, whole = brute_force(log_probs[:frames], text[:place])
            assert float(found[END]) == pytest.approx(whole / begins, rel=1e-5)
            for token in (1, 2):
                wanted = brute_force(log_probs[:frames], (*text[:place], token))[0] / begins
                assert float(found[token]) == pytest.approx(wanted, rel=1e-5, abs=1e-12)
            if place < len(text):
                ctc.advance(torch.full((2,), text[place]), torch.ones(2, dtype=torch.bool))


class Attention:
    """A decoder that knows only how many tokens there were, and the CTC output beside it."""

    end = END
    device = torch.device("cpu")
    filters = ()

    def __init__(self, ctc, log_probs):
        self.ctc = ctc
        self.table = log_probs  # (B, N, V)
        self.prefixes = [[END]] * len(log_probs)
        self.limits = ctc.lengths.tolist()
        self.rows, self.position = torch.arange(len(log_probs)), -1

    def advance(self, tokens):
        self.position += tokens.shape[1]
        return self.table[self.rows, min(self.position, self.table.shape[1] - 1)]

    def select(self, rows):
        self.rows = self.rows[rows]


LENGTHS = (7, 3, 12, 5)


def joint(numbers, weight):
    frames = max(LENGTHS[number] for number in numbers)
    ctc = torch.zeros(len(numbers), frames, 4)
    for row, number in enumerate(numbers):
        ctc[row, : LENGTHS[number]] = random_log_probs(LENGTHS[number], 4, seed=number)
        ctc[row, LENGTHS[number] :] = random_log_probs(frames - LENGTHS[number], 4, seed=99)
    attention = torch.stack([random_log_probs(14, 4, seed=50 + number, scale=1.0) for number in numbers])
    lengths = torch.tensor([LENGTHS[number] for number in numbers])
    return JointScorer(Attention(CtcScorer(ctc, lengths), attention), weight)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_joint_beams_are_the_same_alone_and_in_any_batch(weight):
    alone = {number: tokens.beam_search(joint([number], weight), 3, nbest=3)[0] for number in range(4)}
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0]):
        for number, found in zip(order, tokens.beam_search(joint(order, weight), 3, nbest=3), strict=True):
            assert [each.tokens for each in found] == [each.tokens for each in alone[number]]
            assert [each.score for each in found] == pytest.approx([each.score for each in alone[number]], abs=1e-5)


def test_with_all_the_weight_a_joint_score_is_the_log_probability_of_the_text_by_ctc():
    for number in (0, 1):
        (found,) = tokens.beam_search(joint([number], 1.0), 8, LengthNorm(0.0))
        log_probs = random_log_probs(LENGTHS[number], 4, seed=number)
        target = torch.tensor([found[0].tokens or (1,)])
        if found[0].tokens:
            loss = torch.nn.functional.ctc_loss(
                log_probs[:, None].double(), target, [LENGTHS[number]], [target.shape[1]], reduction="sum"
            )
            assert found[0].score == pytest.approx(-float(loss), abs=1e-4)


def test_the_parts_of_joint_hypotheses_add_up_to_what_they_are_ranked_by():
    scorer = joint([0, 2], 0.3).scorer
    for each in search(scorer, Search("beam", beam=4, length_power=0.5, nbest=4, ctc_weight=0.3)):
        found = [replace(each, nbest=()), *each.nbest]
        parts = [dict(one.parts) for one in found]
        assert all([*own] == ["attention", "ctc", "length"] for own in parts)
        scores = [own["attention"] + own["ctc"] for own in parts]
        assert scores == pytest.approx([one.score for one in found], abs=1e-5)
        ranks = [one.score / (len(one.tokens) + 1) ** 0.5 for one in found]
        assert [sum(own.values()) for own in parts] == pytest.approx(ranks, abs=1e-5)
        assert ranks == sorted(ranks, reverse=True)


def test_the_blank_is_no_label_where_another_token_ends_texts():
    log_probs = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(3)).log_softmax(-1)
    scores = CtcPrefixes(CtcScorer(log_probs, torch.tensor([5])), 2).log_probs()[0]
    assert scores[0] == -torch.inf and torch.isfinite(scores[1:]).all()

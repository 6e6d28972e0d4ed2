"""The rules of a search over an attention decoder: what they forbid, and that every utterance still ends."""

import pytest
import torch

from attune.decoding.search import Search, search
from attune.decoding.tokens import greedy
from attune.families.aed.model import AedModel
from attune.families.aed.rules import AttentionRules, RuledScorer
from attune.families.aed.settings import AedConfig
from attune.families.aed.shape import PRESETS
from attune.types import Batch, TokenTargets


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.inference_mode():
        yield


def model(size="tiny", **settings):
    torch.manual_seed(1)
    made = AedModel(PRESETS[size], AedConfig(weights="x", **settings)).eval()
    made.decoder.output.bias[0] = -20  # it never ends by itself
    for weight in made.decoder.parameters():
        weight.mul_(3)  # and looks at few frames
    return made


def batch(*samples):
    audio = torch.randn(len(samples), max(samples), generator=torch.Generator().manual_seed(2)) / 10
    for row, own in zip(audio, samples, strict=True):
        row[own:] = 0
    prompts = TokenTargets(torch.zeros(len(samples), 1, dtype=torch.long), torch.ones(len(samples), dtype=torch.long))
    return Batch(tuple(map(str, samples)), audio, torch.tensor(samples), prompts)


@pytest.mark.parametrize("ctc_weight", [0.0, 0.4])
@pytest.mark.parametrize("size", ["tiny", "tiny-transformer"])
def test_an_utterance_whose_end_is_never_probable_enough_ends_at_its_limit(size, ctc_weight):
    ruled, settings = model(size, end_threshold=1.5, coverage=1.5), Search("beam", 3, ctc_weight=ctc_weight)
    limits = ruled.scorer(batch(8000, 3000)).limits
    for found, limit in zip(search(ruled.scorer(batch(8000, 3000)), settings), limits, strict=True):
        assert len(found.tokens) == limit and found.score > -torch.inf


@pytest.mark.parametrize("size", ["tiny", "tiny-transformer"])
def test_an_utterance_whose_attention_jumps_wherever_it_goes_is_still_decoded(size):
    plain, ruled = model(size), model(size, max_attention_shift=1)
    recordings = batch(16000, 9000)
    assert [each.tokens for each in greedy(ruled.scorer(recordings))] == [
        each.tokens for each in greedy(plain.scorer(recordings))
    ]
    assert all(search(ruled.scorer(recordings), Search("beam", 3)))


class Looking:
    """A decoder that looks at given frames, one after the other."""

    device, end, prefixes, limits, filters, ctc = torch.device("cpu"), 0, [[0]], [9], (), None

    def __init__(self, *peaks, log_probs=(-1.0, -2.0, -3.0)):
        self.peaks, self.log_probs = list(peaks), torch.tensor([log_probs])

    def advance(self, tokens):
        self.attention = torch.eye(32)[self.peaks.pop(0)][None]
        return self.log_probs


@pytest.mark.parametrize(("peaks", "is_far"), [((3,), False), ((4,), True), ((3, 1), False), ((3, 0), True)])
def test_a_jump_is_one_of_more_frames_or_back_by_as_many(peaks, is_far):
    scorer = RuledScorer(Looking(*peaks), AttentionRules(max_shift=3))
    for _ in peaks:
        found = scorer.advance(torch.tensor([[1]]))
    assert bool(found.max() < -1000) == is_far


@pytest.mark.parametrize(("end", "is_allowed"), [(0.0, True), (-1.4, True), (-1.6, False)])
def test_an_end_needs_a_probability_near_the_best(end, is_allowed):
    others = (-50.0, -60.0) if end == 0 else (-1.0, -3.0)
    scorer = RuledScorer(Looking(0, log_probs=(end, *others)), AttentionRules(end_threshold=1.5))
    log_probs = scorer.advance(torch.tensor([[0]]))
    (forbid,) = scorer.filters
    assert (forbid(log_probs, torch.tensor([[0]]), torch.tensor([1]))[0, 0] > -torch.inf) == is_allowed

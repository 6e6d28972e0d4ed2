import math

import pytest
import torch

from attune.decoding import transducer
from attune.decoding.search import Search, search
from attune.decoding.transducer import greedy
from attune.errors import ModelError
from attune.types import Hypothesis

from transducers import GOLDEN, golden, random_frames, random_transducer, seeds

KINDS = {"rnnt": (), "tdt": (0, 1, 2, 4), "tdt without 0": (1, 3)}


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.inference_mode():
        yield


def one_by_one(scorer, max_labels=transducer.MAX_LABELS):
    """The plainest greedy search of the only utterance, a frame at a time."""
    labels, score, frame, repeats = [], 0.0, 0, 0
    predicted, states = scorer.start(1)
    while frame < int(scorer.lengths[0]):
        tokens, durations = scorer.join(torch.tensor([0]), torch.tensor([frame]), predicted)
        token, duration = int(tokens.argmax()), 0
        score += float(tokens.max())
        if scorer.durations:
            duration = scorer.durations[int(durations.argmax())]
            score += float(durations.max())
        if token == scorer.blank:
            frame, repeats = frame + max(duration, 1), 0
            continue
        labels.append((token, frame, float(tokens.max().exp())))
        predicted, states = scorer.predict(torch.tensor([token]), states)
        frame, repeats = frame + duration, 0 if duration else repeats + 1
        if repeats == max_labels:
            frame, repeats = frame + 1, 0
    return transducer.hypothesis(labels, score)


def same(found, expected, confidence=1e-5):
    assert (found.tokens, found.frames) == (expected.tokens, expected.frames)
    assert found.score == pytest.approx(expected.score, abs=1e-4, rel=1e-5)
    assert found.confidences == pytest.approx(expected.confidences, abs=confidence)


@pytest.mark.parametrize("name", GOLDEN)
def test_tokens_and_frames_are_those_of_nemo_alone_and_together(name):
    model = golden(name)
    alone = [greedy(model.model.scorer([frames]))[0] for frames in model.frames]
    for found in (
        alone,
        greedy(model.model.scorer(model.frames)),
        greedy(model.model.scorer(model.frames[::-1]))[::-1],
    ):
        for hypothesis, clip in zip(found, model.clips, strict=True):
            assert list(hypothesis.tokens) == clip["greedy"]["ids"]
            assert list(hypothesis.frames) == clip["greedy"]["frames"]


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.endswith("tdt")])
def test_the_labels_probabilities_make_up_nemos_score(name):
    # Of a TDT model its score is not: that comes from one softmax over tokens and durations together.
    model = golden(name)
    for hypothesis, clip in zip(greedy(model.model.scorer(model.frames)), model.clips, strict=True):
        assert sum(map(math.log, hypothesis.confidences)) == pytest.approx(clip["greedy"]["score"], rel=1e-5)


@pytest.mark.parametrize("durations", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("seed", seeds(6, quick=3))
def test_a_batch_is_searched_as_the_plainest_search_does_each(durations, seed):
    model = random_transducer(durations=durations, seed=seed, blank_bias=(0.0, 3.0, 6.0)[seed % 3])
    frames = random_frames([17, 1, 0, 40, 5, 23, 8, 9, 2], seed)
    found = greedy(model.scorer(frames))
    assert sum(len(each.tokens) for each in found) > 10
    for hypothesis, own in zip(found, frames, strict=True):
        same(hypothesis, one_by_one(model.scorer([own])))


@pytest.mark.parametrize("durations", KINDS.values(), ids=KINDS.keys())
def test_looking_seldom_changes_nothing(durations, monkeypatch):
    model, frames = random_transducer(durations=durations, blank_bias=3.0), random_frames([17, 1, 0, 40, 5, 23])
    expected = greedy(model.scorer(frames))
    monkeypatch.setattr(transducer, "steps_between_syncs", lambda device: 5)
    for hypothesis, before in zip(greedy(model.scorer(frames)), expected, strict=True):
        same(hypothesis, before)


def test_ended_utterances_leave_so_that_long_ones_do_not_pay_for_short_ones():
    model = random_transducer(blank_bias=6.0)
    together = model.scorer(random_frames([100] + [2] * 30))
    greedy(together)
    alone = model.scorer(random_frames([100]))
    greedy(alone)
    assert together.rows_joined < 2.5 * alone.rows_joined


@pytest.mark.parametrize("durations", [(), (0, 1)])
@pytest.mark.parametrize("limit", [1, 3, 10])
def test_a_model_that_never_falls_silent_says_so_many_labels_in_each_frame(durations, limit):
    model = random_transducer(durations=durations, blank_bias=-1000.0)
    if durations:
        model.output.bias[-2] += 1000.0  # it always stays in its frame
    (found,) = greedy(model.scorer(random_frames([7])), max_labels=limit)
    assert found.frames == tuple(frame for frame in range(7) for _ in range(limit))


def test_a_blank_that_takes_no_frame_takes_one():
    model = random_transducer(durations=(0, 1), blank_bias=1000.0)
    model.output.bias[-2] += 1000.0
    assert greedy(model.scorer(random_frames([30, 3]))) == [Hypothesis((), pytest.approx(0.0, abs=1e-3))] * 2


def test_a_blank_may_be_any_token():
    model = random_transducer(seed=3, blank_bias=2.0)
    renamed = random_transducer(seed=3, blank_bias=2.0)
    renamed.output.weight.copy_(model.output.weight.roll(1, 0))
    renamed.output.bias.copy_(model.output.bias.roll(1, 0))
    renamed.embed.weight.copy_(model.embed.weight.roll(1, 0))
    renamed.embed.weight[0] = torch.nan  # a net need not know the blank
    renamed.blank = 0
    frames = random_frames([12, 30])
    for found, expected in zip(greedy(renamed.scorer(frames)), greedy(model.scorer(frames)), strict=True):
        assert tuple(token - 1 for token in found.tokens) == expected.tokens


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
@pytest.mark.parametrize("settings", [Search("greedy"), Search("beam", beam=3)])
def test_without_frames_nothing_is_said(lengths, settings):
    assert search(random_transducer().scorer(random_frames(lengths)), settings) == [Hypothesis((), 0.0)] * len(lengths)


@pytest.mark.parametrize("settings", [Search("greedy"), Search("beam", beam=3)])
@pytest.mark.parametrize("durations", [(), (0, 1)])
def test_a_transducer_that_diverged_is_named(settings, durations):
    model = random_transducer(durations=durations)
    model.output.weight.fill_(torch.nan)
    with pytest.raises(ModelError, match="NaN"):
        search(model.scorer(random_frames([5, 9])), settings)


@pytest.mark.gpu
@pytest.mark.parametrize("durations", KINDS.values(), ids=KINDS.keys())
def test_a_recorded_graph_finds_what_the_plain_steps_find(durations):
    model = random_transducer(durations=durations, blank_bias=3.0).cuda()
    frames = random_frames([17, 1, 0, 40, 5, 23, 200])
    plain, graphed = greedy(model.scorer(frames)), greedy(model.scorer(frames), graphed=True)
    on_cpu = greedy(model.cpu().scorer(frames))
    for found, expected, elsewhere in zip(graphed, plain, on_cpu, strict=True):
        same(found, expected, confidence=1e-4)
        assert found.tokens == elsewhere.tokens

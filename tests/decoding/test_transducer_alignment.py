import itertools

import pytest
import torch

from attune.decoding.ctc_alignment import ForcedTokens
from attune.decoding.transducer_alignment import align

from transducers import random_frames, random_transducer


def best_by_enumeration(model, frames, tokens):
    """The best path's score and emission frames, by walking through every path of the lattice."""
    scorer = model.scorer([frames])
    outputs = [scorer.start(1)]
    for token in tokens:
        outputs.append(scorer.predict(torch.tensor([token]), outputs[-1][1]))
    durations = model.durations or (0, 1)
    found = []

    def walk(frame, label, score, emitted):
        if frame >= len(frames):
            if label == len(tokens):
                found.append((score, emitted))
            return
        log_probs, lasting = scorer.join(torch.tensor([0]), torch.tensor([frame]), outputs[label][0])
        for number, duration in enumerate(durations):
            gain = float(lasting[0, number]) if model.durations else 0.0
            blank = score + float(log_probs[0, model.blank]) + gain
            if duration:
                walk(frame + duration, label, blank, emitted)
            if label < len(tokens) and (model.durations or not duration):
                own = score + float(log_probs[0, tokens[label]]) + gain
                walk(frame + duration, label + 1, own, (*emitted, frame))

    walk(0, 0, 0.0, ())
    return max(found, default=(None, ()))


@pytest.mark.parametrize(("durations", "seed"), [*itertools.product([(), (0, 1, 2), (1, 2)], range(3))])
@pytest.mark.parametrize("tokens", [(), (1,), (2, 2, 0)])
def test_the_path_is_the_best_of_all_paths(durations, seed, tokens):
    model, (frames,) = random_transducer(durations=durations, seed=seed), random_frames([4], seed)
    (found,) = align(model.scorer([frames]), [ForcedTokens(tokens)])
    score, emitted = best_by_enumeration(model, frames, tokens)
    assert found.score == pytest.approx(score, abs=1e-4)
    assert (found.tokens, found.frames) == (tokens, emitted)


@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_a_row_does_not_depend_on_its_batch(durations):
    model, frames = random_transducer(durations=durations), random_frames([7, 3, 5])
    rows = [ForcedTokens((1, 2, 3)), ForcedTokens((4,)), ForcedTokens((0, 0, 1, 2), may_stop=True)]
    together = align(model.scorer(frames), rows)
    for number, row in enumerate(rows):
        (alone,) = align(model.scorer([frames[number]]), [row])
        assert alone.frames == together[number].frames and alone.tokens == together[number].tokens
        assert alone.score == pytest.approx(together[number].score, abs=1e-4)


def test_labels_that_take_time_may_not_fit():
    model = random_transducer(durations=(1, 2))
    assert align(model.scorer(random_frames([2])), [ForcedTokens((1, 2, 3))]) == [None]

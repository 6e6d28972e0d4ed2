"""A step with a fixed place in the cache says what a step behind a cut-off cache says."""

import pytest
import torch

from attune.families.whisper.layers import Decoder, Past
from attune.families.whisper.replay import ReplayedStep, Scene
from attune.families.whisper.shape import read_shape

from tiny_whisper import write_whisper


@pytest.fixture(scope="module")
def shape(tmp_path_factory):
    return read_shape(write_whisper(tmp_path_factory.mktemp("model")) / "config.json")


def said_step_by_step(shape, device, uses_step):
    torch.manual_seed(3)
    decoder = Decoder(shape, saves_memory=False, plans=False).to(device).eval()
    states = torch.randn(3, 40, decoder.embed_positions.weight.shape[1]).to(device)
    tokens = torch.randint(0, 100, (3, 12)).to(device)
    encoded = decoder.project_encoded(states)
    keys = encoded[0].keys
    shape = (*keys.shape[:2], 16, keys.shape[3])
    cache = [type(encoded[0])(keys.new_zeros(shape), keys.new_zeros(shape)) for _ in encoded]
    step = ReplayedStep(decoder, Scene(encoded, None, cache))
    answers = []
    with torch.inference_mode():
        for place in range(12):
            token = tokens[:, place : place + 1]
            if uses_step:
                answers.append(step(token, place).clone())
            else:
                past = [Past(each, slice(place, place + 1)) for each in cache]
                answers.append(decoder.advance(token, encoded, None, past).float().log_softmax(-1))
            if device == "cpu":
                step._has_run = False  # there is nothing to record on
    return torch.stack(answers).cpu()


def test_a_fixed_place_in_the_cache_says_the_same(shape):
    assert torch.allclose(said_step_by_step(shape, "cpu", True), said_step_by_step(shape, "cpu", False), atol=1e-5)


@pytest.mark.gpu
def test_a_replayed_step_says_the_same(shape):
    assert torch.allclose(said_step_by_step(shape, "cuda", True), said_step_by_step(shape, "cuda", False), atol=1e-4)

"""Gradient checkpointing computes a layer again in backward, in the context that the forward pass had left by then."""

from contextlib import contextmanager

import pytest
import torch

from attune.families.whisper import layers
from attune.families.whisper.model import WhisperModel
from attune.families.whisper.shape import read_shape

from tiny import batch_of
from tiny_whisper import write_whisper


class Rules:
    start = 257


def test_recomputation_chooses_the_kernels_of_the_forward_pass(tmp_path, monkeypatch):
    chosen = []

    @contextmanager
    def kernels(plans, device):
        chosen.append((plans, torch.is_grad_enabled()))
        yield

    monkeypatch.setattr(layers, "attention_kernels", kernels)
    shape = read_shape(write_whisper(tmp_path) / "config.json")
    model = WhisperModel(shape, "full", Rules(), saves_memory=True).train()
    model.loss(batch_of([("a", torch.zeros(16_000).numpy(), (257, 1, 2, 256))])).total.backward()
    assert chosen == [(True, True)] * (shape.encoder_layers + shape.decoder_layers)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_on_a_gpu_it_gives_the_gradients_of_a_model_that_remembers(tmp_path, precision):
    shape = read_shape(write_whisper(tmp_path, d_model=768, encoder_ffn_dim=256, decoder_ffn_dim=256) / "config.json")
    batch = batch_of([("a", torch.randn(16_000).numpy(), (257, 1, 2, 256))]).to(torch.device("cuda"))
    found = []
    for saves_memory in (False, True):
        torch.manual_seed(0)
        model = WhisperModel(shape, "full", Rules(), saves_memory).train().cuda()
        with torch.autocast("cuda", precision):
            loss = model.loss(batch).total
        loss.backward()
        found.append(model.model.encoder.conv1.weight.grad)
    assert torch.allclose(*found, rtol=1e-2, atol=1e-3)

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from attune.audio.masking import draw_masks, mask_features
from attune.audio.settings import MasksConfig
from attune.training.gradients import Gradients
from attune.training.micro import Eager, Graphed, backward_of, graph_shape, padded
from attune.types import Loss

from tiny import batch_of as padded_batch

MASKS = MasksConfig(time_masks=3, time_part=0.4, frequency_masks=0)


class Counting(nn.Module):
    """A loss over the own samples and targets of each row, as far as masks let it; padding counts nothing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(1, 1)

    def graph_samples(self, samples):
        return 48_000

    def loss(self, batch):
        audio = batch.audio[..., None]  # (B, T, 1)
        if batch.masks:
            audio = mask_features(audio, batch.lengths, batch.masks)
        heard = self.layer(audio.sum(1)).squeeze(1)
        own = batch.tokens.lengths > 0
        return Loss(((heard - batch.tokens.ids.sum(1)) ** 2 * own).sum(), batch.tokens.lengths.sum())


def batch_of(rows, samples=20_000, tokens=5, masks=None):
    random = np.random.default_rng(rows)
    audio = [random.standard_normal(samples - row).astype(np.float32) for row in range(rows)]
    batch = padded_batch([(str(row), each, tuple(range(1, tokens + row % 3))) for row, each in enumerate(audio)])
    return replace(batch, masks=masks and draw_masks(range(rows), masks))


@pytest.mark.parametrize("masks", [None, MASKS])
def test_padding_to_a_shape_changes_neither_loss_nor_count(masks):
    batch = batch_of(5, masks=masks)
    wider = padded(batch, graph_shape(batch, 48_000), torch.device("cpu"))
    assert (*wider.audio.shape, wider.tokens.ids.shape[1]) == (16, 48_000, 32)
    model = Counting()
    assert model.loss(wider).total.item() == pytest.approx(model.loss(batch).total.item(), rel=1e-5)
    assert model.loss(wider).count == model.loss(batch).count


def test_what_a_manifest_rounded_away_is_cut_off():
    batch = batch_of(5)
    assert padded(batch, graph_shape(batch, 19_990), torch.device("cpu")).audio[:5].equal(batch.audio[:, :19_990])


def test_on_a_cpu_models_run_as_they_are_written():
    assert isinstance(backward_of(Counting(), "fp32", torch.device("cpu")), Eager)


@pytest.mark.gpu
@pytest.mark.parametrize("masks", [None, MASKS])
def test_a_replayed_graph_adds_the_gradient_of_each_batch(masks):
    device = torch.device("cuda")
    model = Counting().to(device)
    gradients = Gradients(model.parameters())
    eager = Eager(model, "fp32", device)
    graphed = Graphed(eager)
    for rows in (5, 3, 8, 11, 5):
        gradients.clear()
        expected = eager(batch_of(rows, masks=masks), 2.0)
        by_hand = gradients.take()
        found = graphed(batch_of(rows, masks=masks), 2.0)
        assert float(found.total) == pytest.approx(float(expected.total), rel=1e-5)
        assert torch.allclose(gradients.flat, by_hand, rtol=1e-4)
    assert graphed._recorded

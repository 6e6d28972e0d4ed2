"""What a worker sends arrives as it was."""

import numpy as np
import torch

from attune.audio.settings import MasksConfig
from attune.batches.micro_batch import LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.parcel import LARGE, packed
from attune.types import Batch, CachedFeatures, Masks, TokenTargets


def loaded(layers):
    targets = TokenTargets(torch.tensor([[3, 4], [5, 0]]), torch.tensor([2, 1]))
    masks = Masks(torch.rand(2, 3, 2), MasksConfig())
    cached = CachedFeatures(("a", "b"), layers, torch.tensor([2, 3]))
    batch = Batch(("a", "b"), torch.rand(2, LARGE), torch.tensor([9, LARGE]), targets, masks, cached, (("x",), ()))
    return LoadedMicroBatch(MicroBatchPlan(Position(4), 1, np.array([7, 8])), batch)


def test_large_tensors_go_through_shared_memory_and_all_else_as_bytes():
    for dtype in (torch.bfloat16, torch.float32, torch.bool):
        sent = loaded(torch.rand(2, 1, 3, 4).to(dtype))
        parcel = packed(sent)
        assert [tensor.shape for tensor in parcel.large] == [(2, LARGE)]
        assert parcel.large[0].is_shared()
        found, expected = parcel.open().batch, sent.batch
        assert torch.equal(found.cached.layers, expected.cached.layers)
        assert found.cached.layers.dtype == dtype
        pairs = [(each.audio, each.lengths, each.tokens.ids, each.masks.draws) for each in (found, expected)]
        assert all(torch.equal(one, other) for one, other in zip(*pairs, strict=True))
        assert (found.ids, found.phrases, found.masks.settings) == (expected.ids, expected.phrases, MasksConfig())
        found.lengths.add_(1)  # memory of its own, which may be written
        assert expected.lengths.tolist() == [9, LARGE]


def test_a_micro_batch_without_rows_arrives_too():
    empty = LoadedMicroBatch(MicroBatchPlan(Position(4), 1, np.array([], int)), None)
    assert packed(empty).open().batch is None

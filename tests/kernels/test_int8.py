import pytest
import torch
from torch import nn

from attune.kernels.int8 import Int8Linear, int8_copy


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(48, 24)


def test_a_layer_in_int8_is_near_the_one_it_was_made_from(layer):
    inputs = torch.randn(3, 7, 48)
    difference = (Int8Linear(layer.weight, layer.bias)(inputs) - layer(inputs)).abs().max()
    assert 0 < difference < 0.03


def test_a_row_is_computed_to_the_bit_as_if_it_were_alone_whatever_is_beside_it(layer):
    quantized = Int8Linear(layer.weight, layer.bias)
    rows = torch.randn(33, 48)
    beside_loud = torch.cat([rows, torch.full((5, 48), 1e4)])
    together = quantized(beside_loud)[:33]
    alone = torch.cat([quantized(row[None]) for row in rows])
    assert torch.equal(together, alone)


def test_inputs_that_ask_for_a_gradient_get_none_and_outputs_have_their_type(layer):
    outputs = Int8Linear(layer.weight, layer.bias)(torch.randn(2, 48, dtype=torch.float64, requires_grad=True))
    assert not outputs.requires_grad and outputs.dtype == torch.float64


def test_its_weights_are_near_those_of_the_layer(layer):
    assert (Int8Linear(layer.weight).weight - layer.weight).abs().max() < layer.weight.abs().max() / 200


def test_a_row_of_zeros_becomes_the_bias(layer):
    assert torch.equal(Int8Linear(layer.weight, layer.bias)(torch.zeros(2, 48)), layer.bias.expand(2, -1))


def test_a_copy_replaces_every_linear_layer_and_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Conv1d(4, 4, 1), nn.Sequential(nn.Linear(4, 8, bias=False), nn.GELU()), nn.Linear(8, 2))
    copied = int8_copy(model)
    assert [type(each) for each in copied.modules() if isinstance(each, nn.Linear | Int8Linear)] == [Int8Linear] * 2
    assert sum(isinstance(each, nn.Linear) for each in model.modules()) == 2
    assert not copied.training

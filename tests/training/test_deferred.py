import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from attune.errors import ModelError
from attune.stored_tensors import open_tensors
from attune.training.deferred import Deferred


def build(path):
    """Draws, fills, views, values that are looked at, and weights from a file of half precision."""
    model = nn.ModuleDict({"linear": nn.Linear(300, 200), "embedding": nn.Embedding(500, 200, padding_idx=1)})
    with torch.device("meta"):
        late = nn.Linear(200, 300)
    model["late"] = late.to_empty(device="cpu")
    nn.init.normal_(late.weight, std=0.02)
    nn.init.zeros_(late.bias)
    model["lstm"] = nn.LSTM(128, 200)
    model["more"] = nn.ParameterList([torch.randn(400, 200) * 0.3])
    model.register_buffer("mask", torch.ones(200, 200).triu())
    stored = open_tensors(path)
    with torch.no_grad():
        model["linear"].weight.copy_(stored["weight"].float())
        model["embedding"].weight[5:7] = model["linear"].weight[:2, :200]
        if model["linear"].weight.abs().max() > 0:
            model["lstm"].weight_ih_l0[200:400].fill_(1.0)
    model["last"] = nn.Linear(20, 3)
    return model


@pytest.fixture
def path(tmp_path):
    save_file({"weight": torch.randn(200, 300).half()}, tmp_path / "half.safetensors")
    return tmp_path / "half.safetensors"


def test_a_model_built_without_memory_has_the_bits_of_one_that_was_not(path):
    torch.manual_seed(1)
    real, following = build(path), torch.rand(3)
    torch.manual_seed(1)
    deferred = Deferred()
    with deferred:
        built = build(path)
    assert torch.equal(torch.rand(3), following)
    tensors = deferred.tensors(built)
    expected = {**dict(real.named_parameters()), **dict(real.named_buffers())}
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    assert all(each.device.type == "meta" for each in built.parameters() if each.numel() > 20_000)


def test_weights_that_nobody_filled_are_refused():
    deferred = Deferred()
    with deferred:
        layer = nn.Linear(200, 200)
        layer.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(200, 200)))
    with pytest.raises(ModelError, match=r"cannot be built in shards.*train\.shard=optimizer"):
        deferred.tensors(layer)["weight"]

import sys
from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from attune.errors import ConfigError
from attune.training.adam8 import BLOCK, SMALLEST, Adam8, decode, encode
from attune.training.bitsandbytes8 import BitsandbytesAdam8
from attune.training.optimizer import load_state_by_name, make_optimizer, state_by_name

from eight_bits import distances
from interpreter import in_interpreter

BETAS = (0.9, 0.98)
needs_bitsandbytes = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
KINDS = ["adamw8bit", pytest.param("bitsandbytes", marks=needs_bitsandbytes)]


class Classifier(nn.Module):
    """Rare words make an embedding's gradients as uneven as they get."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(601, 32)  # not a whole number of blocks
        self.hidden = nn.Linear(32, 160)
        self.output = nn.Linear(160, 40)

    def forward(self, words):
        return self.output(torch.relu(self.hidden(self.embed(words))))


def words_of(step):
    generator = torch.Generator().manual_seed(step)
    return (torch.rand(256, generator=generator) ** 3 * 601).long()


def train(model, optimizer, first, last):
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        words = words_of(step)
        loss = nn.functional.cross_entropy(model(words), words * 7 % 40)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def trained(name, last=150, lr=4e-3):
    model = Classifier()
    optimizer = make_optimizer(name, model, lr, 0.01, BETAS)
    return model, optimizer, train(model, optimizer, 0, last)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_as_well_as_adamw(kind):
    full, eight = (sum(trained(name)[2][-20:]) / 20 for name in ("adamw", kind))
    assert full < 1.0  # from 3.7 at the start
    assert eight == pytest.approx(full, rel=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_takes_little_more_than_two_bytes_for_a_weight(kind):
    model = nn.Linear(1024, 512, bias=False)
    optimizer = make_optimizer(kind, model, 1e-3, 0.0, BETAS)
    model(torch.randn(3, 1024)).sum().backward()
    optimizer.step()
    size = sum(tensor.nbytes for tensor in state_by_name(optimizer, model).values())
    assert size / model.weight.numel() <= 2.1


def test_small_tensors_are_treated_exactly_as_adamw_does():
    def steps(make):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(SMALLEST - 1))
        optimizer = make([weight], lr=1e-2, betas=BETAS, weight_decay=0.1)
        for _ in range(5):
            weight.grad = torch.sin(weight.detach() * 9)
            optimizer.step()
        return weight.detach(), optimizer.state[weight].keys()

    (eight, kept), (full, keys) = steps(Adam8), steps(torch.optim.AdamW)
    assert torch.equal(eight, full) and kept == keys


def test_the_first_step_of_a_large_tensor_is_adamws():
    weight, same = (nn.Parameter(torch.linspace(-1, 1, 5000)) for _ in range(2))
    weight.grad = same.grad = torch.linspace(-3, 5, 5000) ** 3
    for each, make in ((weight, Adam8), (same, torch.optim.AdamW)):
        make([each], lr=1e-2, betas=BETAS, weight_decay=0.1).step()
    assert (weight - same).abs().max() <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_saved_goes_on_in_the_same_bits(kind, tmp_path):
    whole, optimizer, _ = trained(kind, last=5)
    save_file(state_by_name(optimizer, whole), tmp_path / "optimizer.safetensors")
    weights = {name: tensor.clone() for name, tensor in whole.state_dict().items()}
    train(whole, optimizer, 5, 10)

    resumed = Classifier()
    resumed.load_state_dict(weights)
    second = make_optimizer(kind, resumed, 4e-3, 0.01, BETAS)
    load_state_by_name(second, resumed, load_file(tmp_path / "optimizer.safetensors"))
    train(resumed, second, 5, 10)
    assert same_bits(whole.state_dict(), resumed.state_dict())
    assert same_bits(state_by_name(optimizer, whole), state_by_name(second, resumed))


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_end_in_the_same_bits(kind):
    assert same_bits(trained(kind, last=10)[0].state_dict(), trained(kind, last=10)[0].state_dict())


@needs_bitsandbytes
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_large_tensors_are_treated_exactly_as_bitsandbytes_does(device):
    from bitsandbytes.optim import AdamW8bit

    def steps(make):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(97, 61).to(device))
        optimizer = make([weight], lr=1e-2, betas=BETAS, weight_decay=0.1)
        for _ in range(5):
            weight.grad = torch.sin(weight.detach() * 9)
            optimizer.step()
        return weight.detach()

    assert torch.equal(steps(BitsandbytesAdam8), steps(AdamW8bit))


def test_without_bitsandbytes_it_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match=r"attune-speech\[bnb\]"):
        trained("bitsandbytes", last=1)


def same_bits(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_codes_give_back_values_to_within_half_a_step_and_encode_to_themselves(dtype):
    values = torch.cat([torch.linspace(1, 1000, BLOCK)[None] ** 2, torch.rand(9, BLOCK)])
    if dtype.is_signed:
        values[:, ::3] *= -1
    codes, scale = torch.zeros_like(values, dtype=dtype), torch.zeros(len(values), 1)
    encode(values, codes, scale)
    back = decode(codes, scale)
    steps = torch.iinfo(dtype).max
    assert ((back.abs() / scale).sqrt() - (values.abs() / scale).sqrt()).abs().max() * steps <= (
        0.51 if dtype.is_signed else 1.0
    )
    assert torch.equal(back.abs().amax(1), values.abs().amax(1))
    again = torch.zeros_like(codes)
    encode(back, again, scale)
    assert torch.equal(again, codes)


def test_a_small_memory_of_squares_never_vanishes():
    values = torch.full((1, BLOCK), 1e-9)
    values[0, 0] = 1.0
    codes, scale = torch.zeros(1, BLOCK, dtype=torch.uint8), torch.zeros(1, 1)
    encode(values, codes, scale)
    assert decode(codes, scale).min() > 0


def test_weights_without_a_gradient_yet_stay_where_they_are():
    weight = nn.Parameter(torch.randn(SMALLEST))
    before = weight.detach().clone()
    optimizer = Adam8([weight], lr=1.0)
    for _ in range(3):
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
    assert torch.equal(weight, before)


@pytest.mark.recipe
def test_the_kernel_steps_as_plain_torch_does_and_touches_nothing_else():
    found = in_interpreter("interpreted_adam8.py")
    assert found["weights"] < 2e-5 and found["scales"] < 1e-6 and found["codes"] <= 1, found


@pytest.mark.gpu
def test_the_kernel_steps_as_plain_torch_does_on_the_device():
    found = distances("cuda")
    assert found["weights"] < 2e-5 and found["scales"] < 1e-6 and found["codes"] <= 1, found


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["adamw", "adafactor", *KINDS])
def test_on_a_gpu_what_was_saved_goes_on_in_the_same_bits(name, tmp_path):
    def fresh():
        model = nn.Linear(512, 512).cuda()
        return model, make_optimizer(name, model, 1e-2, 0.01, BETAS)

    def step(model, optimizer, seed):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        model(torch.randn(8, 512, device="cuda")).square().sum().backward()
        optimizer.step()

    model, optimizer = fresh()
    step(model, optimizer, 1)
    save_file(state_by_name(optimizer, model), tmp_path / "optimizer.safetensors")
    weights = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    step(model, optimizer, 2)

    resumed, second = fresh()
    resumed.load_state_dict(weights)
    load_state_by_name(second, resumed, load_file(tmp_path / "optimizer.safetensors"))
    step(resumed, second, 2)
    assert same_bits(model.state_dict(), resumed.state_dict())

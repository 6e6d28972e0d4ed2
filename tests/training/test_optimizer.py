import pytest
import torch
from torch import nn

from attune.training.adafactor import Adafactor
from attune.training.optimizer import make_optimizer, set_lr
from attune.training.settings import OptimizerConfig

BETAS = (0.9, 0.98)


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def test_matrices_decay_and_biases_and_norms_do_not():
    made = make_optimizer("adamw", model(), 1e-2, 0.1, BETAS)
    decayed, other = made.param_groups
    assert decayed["weight_decay"] == 0.1 and all(parameter.ndim == 2 for parameter in decayed["params"])
    assert other["weight_decay"] == 0.0 and len(other["params"]) == 4


def test_frozen_parameters_are_not_in_it():
    net = model()
    net[0].requires_grad_(False)
    groups = make_optimizer("adamw", net, 1e-2, 0.1, BETAS).param_groups
    assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in [*net[1:].parameters()]}


@pytest.mark.parametrize("name", ["adamw", "adamw8bit", "adafactor", "adadelta"])
def test_each_group_gets_its_part_of_the_learning_rate(name):
    net = model()
    made = make_optimizer(name, net, 1e-2, 0.1, BETAS, {"0.weight": 0.5, "0.bias": 0.5})
    set_lr(made, 0.8)
    rates = {id(p): float(group["lr"]) for group in made.param_groups for p in group["params"]}
    expected = [0.4, 0.4, 0.8, 0.8, 0.8, 0.8]
    assert [rates[id(p)] for p in net.parameters()] == pytest.approx(expected)
    assert len(made.param_groups) == 4


@pytest.mark.parametrize("name", ["adamw", "adamw8bit"])
def test_the_betas_of_a_recipe_are_those_of_every_group(name):
    made = make_optimizer(name, model(), 1e-2, 0.1, (0.8, 0.95))
    assert [group["betas"] for group in made.param_groups] == [(0.8, 0.95)] * 2


def test_factors_of_one_change_no_bit():
    def steps(factors):
        net = model()
        made = make_optimizer("adamw", net, 1e-2, 0.1, BETAS, factors)
        for _ in range(3):
            set_lr(made, 0.003)
            made.zero_grad()
            net(torch.ones(2, 3)).square().sum().backward()
            made.step()
        return torch.cat([p.detach().flatten() for p in net.parameters()])

    assert torch.equal(steps(None), steps(dict.fromkeys(dict(model().named_parameters()), 1.0)))


@pytest.mark.parametrize("start", [0.0, 0.02, 5.0])
def test_adafactor_moves_weights_by_the_learning_rate_whatever_their_size(start):
    torch.manual_seed(0)
    net = nn.Linear(32, 32, bias=False)
    nn.init.normal_(net.weight, std=start)
    before = net.weight.detach().clone()
    made = make_optimizer("adafactor", net, 1e-3, 0.0, BETAS)
    net(torch.randn(8, 32)).sum().backward()
    made.step()
    moved = float((net.weight.detach() - before).square().mean().sqrt())
    assert 0.3e-3 < moved < 3e-3


def test_the_first_step_of_adafactor_on_a_large_matrix_is_the_rate():
    weight = nn.Parameter(torch.zeros(20_000, 1000))
    weight.grad = torch.full_like(weight, 0.1)
    Adafactor([weight], lr=1.0).step()
    assert float(weight[0, 0].detach()) == pytest.approx(-1.0, rel=1e-5)


def test_where_weights_are_small_adafactor_is_torchs():
    def steps(make):
        net = model()
        made = make(net)
        for _ in range(5):
            made.zero_grad()
            net(torch.randn(4, 3, generator=torch.Generator().manual_seed(1))).pow(3).sum().backward()
            made.step()
        return torch.cat([p.detach().flatten() for p in net.parameters()])

    def theirs(net):
        matrices, rest = ([p for p in net.parameters() if (p.ndim > 1) == wanted] for wanted in (True, False))
        return torch.optim.Adafactor(
            [{"params": matrices, "weight_decay": 0.1}, {"params": rest}], lr=1e-3, eps=(None, 1.0)
        )

    ours = steps(lambda net: make_optimizer("adafactor", net, 1e-3, 0.1, BETAS))
    assert torch.allclose(ours, steps(theirs), atol=1e-6)  # no tensor has an RMS above 1, or just above


def test_betas_that_nobody_would_use_are_refused():
    with pytest.raises(ValueError, match="adafactor has no betas"):
        OptimizerConfig(name="adafactor", lr=1e-3, betas=(0.9, 0.999))


def test_adadelta_follows_its_formula():
    net = nn.Linear(3, 2, bias=False)
    made = make_optimizer("adadelta", net, 1.0, 0.0, BETAS)
    weight, squares, moves = (
        net.weight.detach().clone().double(),
        torch.zeros(2, 3).double(),
        torch.zeros(2, 3).double(),
    )
    for step in range(4):
        made.zero_grad()
        net(torch.full((1, 3), step + 1.0)).square().sum().backward()
        made.step()
        gradient = 2 * (weight @ torch.full((3,), step + 1.0).double())[:, None] * (step + 1.0)
        squares = 0.95 * squares + 0.05 * gradient**2
        move = gradient * ((moves + 1e-8) / (squares + 1e-8)).sqrt()
        moves, weight = 0.95 * moves + 0.05 * move**2, weight - move
    assert torch.allclose(net.weight.detach().double(), weight, atol=1e-6)

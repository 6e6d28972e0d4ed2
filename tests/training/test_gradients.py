import pytest
import torch

from attune.testing.ranks import run_ranks
from attune.training.gradients import Gradients, Tree, sum_in_tree
from attune.world import World


def tree_of(leaves):
    tree = Tree()
    for leaf in leaves:
        tree.add(leaf)
    return tree.total()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_a_tree_adds_all_its_leaves(count):
    leaves = [torch.full((3,), float(index)) for index in range(count)]
    assert torch.equal(tree_of(leaves), torch.stack(leaves).sum(0))


def test_a_tree_cut_into_branches_gives_the_same_bits():
    leaves = [torch.randn(1000) for _ in range(8)]
    whole = tree_of(leaves)
    assert torch.equal(whole, tree_of([tree_of(leaves[:4]), tree_of(leaves[4:])]))
    in_order = sum(leaves[1:], leaves[0])
    assert not torch.equal(whole, in_order)  # the order of additions does show in float32


def test_leaves_without_a_value_do_not_change_the_sum():
    leaf = torch.randn(10)
    assert torch.equal(tree_of([leaf, None, None]), leaf)
    assert tree_of([None, None]) is None


def test_the_norm_of_millions_of_gradients_is_exact():
    parameter = torch.nn.Parameter(torch.zeros(20_000_003))
    gradients = Gradients([parameter])
    gradients.flat.fill_(0.1)
    exact = float(gradients.flat.double().square().sum().sqrt())
    assert float(gradients.norm(World.alone())) == pytest.approx(exact, rel=1e-5)


def rank_sum(world):
    branch = torch.full((10,), 0.1) * (world.rank + 1)
    sum_in_tree(world, branch)
    return branch


def test_ranks_end_with_the_same_tree_sum():
    one, two, three = (torch.full((10,), 0.1) * scale for scale in (1, 2, 3))
    assert all(torch.equal(total, (one + two) + three) for total in run_ranks(3, rank_sum))


def test_backward_adds_into_the_flat_buffer():
    layer = torch.nn.Linear(3, 2)
    gradients = Gradients(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    layer(torch.ones(1, 3)).sum().backward()
    assert gradients.flat.tolist() == [2.0] * 8
    gradients.clear()
    assert layer.weight.grad.abs().sum() == 0

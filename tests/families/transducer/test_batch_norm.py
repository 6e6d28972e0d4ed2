"""Batch normalization over own frames: what a step's statistics are, whoever computes which part of it."""

import numpy as np
import pytest
import torch
from torch import nn

from attune.batches.load import micros_from
from attune.batches.micro_batch import LoadedMicroBatch, Position
from attune.batches.plan import Budget, plan_epoch
from attune.families._norm import BatchNorm
from attune.families._own import own_of
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.presets import preset
from attune.families.transducer.settings import TransducerConfig
from attune.families.transducer.shape import read_shape
from attune.testing.ranks import run_ranks
from attune.training.adapt import adapt
from attune.training.gradients import Gradients
from attune.training.loop import StepRules, take_steps
from attune.training.optimizer import make_optimizer
from attune.training.progress import TrainingProgress
from attune.training.schedule import Schedule
from attune.training.settings import AdaptConfig
from attune.world import World

from tiny import batch_of

UTTERANCES = 12
LENGTHS = torch.tensor([9, 4, 7])
OWN = own_of(LENGTHS, 9)


@pytest.fixture
def frames():
    return torch.randn(3, 5, 9, generator=torch.Generator().manual_seed(1)) * 3 + 40


def own_frames(frames):
    """What lies within the lengths, as one long row."""
    return torch.cat([row[:, :length] for row, length in zip(frames, LENGTHS.tolist(), strict=True)], dim=1)[None]


def test_own_frames_are_normalized_as_if_there_were_no_padding(frames):
    norm, theirs = BatchNorm(5), nn.BatchNorm1d(5)
    padded, plain = frames.clone().requires_grad_(), own_frames(frames).requires_grad_()
    ours = own_frames(norm(padded, OWN))
    expected = theirs(plain)
    assert torch.allclose(ours, expected, atol=1e-5)
    ours.square().sum().backward()
    expected.square().sum().backward()
    assert torch.allclose(own_frames(padded.grad), plain.grad, atol=1e-5)
    assert torch.allclose(norm.weight.grad, theirs.weight.grad, rtol=1e-4)


def test_gradients_are_exact_whatever_comes_back_from_beyond_the_own_frames(frames):
    norm = BatchNorm(5).double()
    weights = (frames.double().requires_grad_(), norm.weight, norm.bias)
    assert torch.autograd.gradcheck(lambda x, *_: norm(x, OWN), weights)


def test_the_running_statistics_of_one_micro_batch_are_torchs(frames):
    norm, theirs = BatchNorm(5), nn.BatchNorm1d(5)
    for _ in range(3):
        gradients = Gradients(norm.parameters(), [norm])
        norm(frames.requires_grad_(), OWN).sum().backward()
        gradients.settle()
        theirs(own_frames(frames).detach())
    assert torch.allclose(norm.running_mean, theirs.running_mean, rtol=1e-6)
    assert torch.allclose(norm.running_var, theirs.running_var, rtol=1e-4)
    assert int(norm.num_batches_tracked) == int(theirs.num_batches_tracked) == 3
    norm.eval(), theirs.eval()
    assert torch.allclose(own_frames(norm(frames, OWN)), theirs(own_frames(frames)), atol=1e-5)


def test_micro_batches_add_up_to_the_statistics_of_all_their_frames(frames):
    norm, theirs = BatchNorm(5), nn.BatchNorm1d(5)
    gradients = Gradients(norm.parameters(), [norm])
    for row in range(3):
        norm(frames[row : row + 1].requires_grad_(), own_of(LENGTHS[row : row + 1], 9)).sum().backward()
    gradients.settle()
    theirs(own_frames(frames).detach())
    assert torch.allclose(norm.running_mean, theirs.running_mean, rtol=1e-6)
    assert torch.allclose(norm.running_var, theirs.running_var, rtol=1e-4)


def test_of_norms_that_settle_together_one_that_saw_a_single_frame_stays_where_it_was(frames):
    norm, bored = BatchNorm(5), BatchNorm(5)
    gradients = Gradients([*norm.parameters(), *bored.parameters()], [norm, bored])
    norm(frames.requires_grad_(), OWN).sum().backward()
    bored(frames[:1, :, :1], own_of(torch.tensor([1]), 1)).sum().backward()
    gradients.settle()
    assert norm.running_mean.all() and (norm.running_var != 1).all()
    assert not bored.running_mean.any() and (bored.running_var == 1).all()


def test_the_loss_scale_does_not_touch_the_statistics(frames):
    norm = BatchNorm(5)
    gradients = Gradients(norm.parameters(), [norm])
    (norm(frames.requires_grad_(), OWN).sum() * 1024).backward()
    assert float(gradients.flat[len(gradients.gradient)]) == int(LENGTHS.sum())


def test_a_frozen_norm_keeps_its_statistics_and_uses_them(frames):
    norm = BatchNorm(5, is_frozen=True)
    norm.running_mean.fill_(40)
    gradients = Gradients(norm.parameters(), [norm])
    normed = norm(frames.requires_grad_(), OWN)
    normed.sum().backward()
    gradients.settle()
    assert torch.allclose(normed, (frames - 40) / (1 + 1e-5) ** 0.5, atol=1e-5)
    assert torch.equal(norm.running_mean, torch.full((5,), 40.0)) and not int(norm.num_batches_tracked)


def test_a_norm_whose_weights_are_frozen_keeps_its_statistics_too(frames):
    model = nn.Sequential(nn.Linear(1, 1), Wrapped())
    adapt(model, AdaptConfig(freeze=("1",)), seed=1)
    gradients = Gradients(model[0].parameters(), [model[1].norm])
    model[1](frames.requires_grad_()).sum().backward()
    gradients.settle()
    assert not model[1].norm.running_mean.any()


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = BatchNorm(5)

    def forward(self, frames):
        return self.norm(frames, OWN)


def make_model(encoder="contextnet", saves_memory=False):
    torch.manual_seed(0)
    described = preset(TransducerConfig(encoder=encoder, size="dummy", tokens="task"))
    return TransducerModel(read_shape(described), [str(n) for n in range(9)], described, saves_memory=saves_memory)


def row(index, poison):
    random = np.random.default_rng(index)
    audio = random.standard_normal(3000 + 700 * index).astype(np.float32)
    return f"utt-{index}", audio * (np.nan if index in poison else 1), tuple(random.integers(0, 9, 1 + index % 4))


def plan(epoch):
    return plan_epoch(np.linspace(1, 2, UTTERANCES), np.arange(UTTERANCES), Budget(None, 2, 4), seed=3, epoch=epoch)


def trained(world: World, strict=False, poison=(), steps=3, **model):
    """The state after a few steps of four micro-batches each."""
    model = make_model(**model)
    rules = StepRules(1, Schedule(3e-3, steps, 1, "constant"), "fp32", 1.0, strict, 5)
    optimizer = make_optimizer("adamw", model, 3e-3, 0.0, (0.9, 0.98))
    micros = (
        LoadedMicroBatch(
            micro, batch_of([row(int(index), poison) for index in micro.rows]) if len(micro.rows) else None
        )
        for micro in micros_from(Position(), plan, world.rank, world.size, strict)
    )
    for _ in take_steps(model, optimizer, micros, rules, TrainingProgress(), world, lambda: False):
        pass
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def largest_difference(one, other):
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


@pytest.fixture(scope="module")
def alone():
    return trained(World.alone())


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_do_not_show_in_weights_and_statistics(alone, ranks):
    states = run_ranks(ranks, trained)
    assert all(largest_difference(states[0], state) == 0 for state in states)
    assert largest_difference(alone, states[0]) <= 1e-5
    assert float(alone["encoder.encoder.0.mconv.2.running_mean"].abs().max()) > 1e-3


def test_strictly_one_two_and_four_ranks_have_the_same_bits():
    one, two, four = (run_ranks(count, trained, True)[0] for count in (1, 2, 4))
    assert largest_difference(one, two) == largest_difference(one, four) == 0


def test_what_is_computed_twice_to_save_memory_is_counted_once(alone):
    assert largest_difference(alone, trained(World.alone(), saves_memory=True)) == 0


def test_a_skipped_step_moves_no_statistics():
    broken = trained(World.alone(), poison=range(UTTERANCES), steps=2)
    fresh = make_model().state_dict()
    assert largest_difference(fresh, broken) == 0


def test_the_state_dict_has_torchs_names_and_nothing_of_the_tally():
    assert set(BatchNorm(5).state_dict()) == set(nn.BatchNorm1d(5).state_dict())

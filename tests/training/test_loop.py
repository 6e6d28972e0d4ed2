import math

import numpy as np
import pytest
import torch
from torch import nn

from attune.batches.load import micros_from
from attune.batches.micro_batch import LoadedMicroBatch, MicroBatchPlan, Position
from attune.batches.plan import Budget, plan_epoch
from attune.errors import ConfigError, TrainingError
from attune.families._norm import BatchNorm
from attune.testing.ranks import run_ranks
from attune.training.loop import StepRules, take_steps
from attune.training.optimizer import make_optimizer
from attune.training.precision import LossScale, first_scale
from attune.training.progress import TrainingProgress
from attune.training.schedule import Schedule
from attune.training.sharding import has_slices, share_weights, whole_weights
from attune.types import Loss
from attune.world import World

from tiny import batch_of

UTTERANCES = 40


class Toy(nn.Module):
    """Predicts the first target from 8 samples, with dropout; a NaN target makes a NaN loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 5))

    def loss(self, batch):
        logits = self.layers(batch.audio[:, :8])
        total = nn.functional.cross_entropy(logits.float(), batch.tokens.ids[:, 0], reduction="sum")
        return Loss(total, batch.tokens.lengths.sum())


def row(index: int, poison: frozenset[int] = frozenset()):
    audio = np.random.default_rng(index).standard_normal(8 + index % 3).astype(np.float32)
    if index in poison:
        audio[0] = np.nan
    return f"utt-{index}", audio, (index % 5,) + (1,) * (index % 4)


def plan(epoch: int):
    seconds = np.random.default_rng(1).uniform(1, 3, UTTERANCES)
    return plan_epoch(seconds, np.arange(UTTERANCES), Budget(8.0, None, 4), seed=3, epoch=epoch)


def loaded(world, start=Position(), aligned=False, poison=frozenset(), seen=None):
    for micro in micros_from(start, plan, world.rank, world.size, aligned):
        if seen is not None:
            seen.extend((micro.position.epoch, int(index)) for index in micro.rows)
        rows = [row(int(index), poison) for index in micro.rows]
        yield LoadedMicroBatch(micro, batch_of(rows) if rows else None)


def rules(steps=30, **changes):
    defaults = dict(
        seed=5, schedule=Schedule(1e-2, 30, 3, "linear"), precision="fp32", clip=1.0, strict=False, nonfinite_patience=3
    )
    return StepRules(**{**defaults, **changes})


def train(world, steps=30, strict=False, precision="fp32", poison=frozenset(), shares=False):
    model = Toy()
    if shares:
        share_weights(model, world)
    optimizer = make_optimizer("adamw", model, 1e-2, 0.01, (0.9, 0.98))
    settings = rules(strict=strict, precision=precision)
    progress = TrainingProgress(scale=first_scale(precision))
    done = []
    for step in take_steps(
        model, optimizer, loaded(world, aligned=strict, poison=poison), settings, progress, world, lambda: False
    ):
        done.append(step)
        if step.progress.position.step == steps:
            break
    return torch.cat([p.detach().flatten() for p in whole_weights(model).values()]), done


def test_the_number_of_ranks_changes_weights_by_rounding_only():
    alone = run_ranks(1, train)[0][0]
    for ranks in (2, 4):
        for weights, _ in run_ranks(ranks, train):
            assert (weights - alone).abs().max() <= 1e-6


def test_strict_training_ends_in_the_same_bits_on_any_number_of_ranks():
    alone = run_ranks(1, train, 30, True)[0][0]
    for ranks in (2, 3, 4):
        for weights, _ in run_ranks(ranks, train, 30, True):
            assert torch.equal(weights, alone)


def test_more_ranks_than_micro_batches_finish_and_agree():
    alone = run_ranks(1, train, 6, True)[0][0]
    assert all(torch.equal(weights, alone) for weights, _ in run_ranks(6, train, 6, True))


def test_the_loss_is_divided_once_by_the_count_of_the_whole_step():
    _, steps = train(World.alone(), steps=1)
    model = Toy()
    total = count = 0.0
    for slot in range(4):
        batch = batch_of([row(int(index)) for index in plan(0).micro(0, slot)])
        torch.manual_seed(torch_seed(1, slot))
        loss = model.loss(batch)
        total, count = total + loss.total, count + loss.count
    (total / count).backward()
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert steps[0].loss == pytest.approx(float(total.detach() / count))
    assert steps[0].gradient_norm == pytest.approx(float(norm), rel=1e-5)


def torch_seed(step, slot):
    from attune.seeds import derive

    return derive(5, "dropout", step, slot)


def test_a_resumed_loop_continues_in_the_middle_of_an_epoch_as_if_never_stopped():
    model = Toy()
    optimizer = make_optimizer("adamw", model, 1e-2, 0.01, (0.9, 0.98))
    progress = TrainingProgress()
    for _ in range(3):  # stop and go on twice, with the objects kept
        stepper = take_steps(
            model, optimizer, loaded(World.alone(), progress.position), rules(), progress, World.alone(), lambda: False
        )
        for step in stepper:
            progress = step.progress
            if progress.position.step % 10 == 0:
                break
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(weights, train(World.alone())[0])


def test_every_utterance_is_trained_on_once_per_epoch_when_ranks_change_in_its_middle():
    seen, position = [], Position()
    for ranks in (2, 4, 1, 3, 2):
        last = position
        for rank in range(ranks):
            world = World(rank, ranks, torch.device("cpu"))
            mine = []
            for item in loaded(world, position, seen=mine):
                if item.micro.position.step > position.step + 2:
                    break
                last = max(last, item.micro.position, key=lambda p: p.step)
                seen.extend((item.micro.position.epoch, int(index)) for index in item.micro.rows)
        position = last
    first_epoch = [index for epoch, index in seen if epoch == 0]
    assert sorted(first_epoch) == list(range(UTTERANCES))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_with_a_non_finite_loss_is_skipped_on_every_rank_and_names_the_utterances(ranks):
    for _, steps in run_ranks(ranks, train, 4, False, "fp32", frozenset({7})):
        skipped = [step for step in steps if step.skipped]
        assert [step.skipped for step in skipped] == ["non-finite loss"]
        assert "utt-7" in skipped[0].skipped_ids and len(skipped[0].skipped_ids) < UTTERANCES
        assert steps[-1].progress.skipped == 1


@pytest.mark.parametrize("shares", [False, True])
def test_a_non_finite_loss_costs_its_own_steps_alone_where_a_rank_has_nothing_to_do(shares):
    """Two of three ranks have two of four micro-batches each; where they share the weights, the third keeps step."""
    first = int(plan(0).micro(0, 0)[0])
    for _, steps in run_ranks(3, train, 5, False, "fp32", frozenset({first}), shares):
        assert [step.skipped for step in steps] == ["non-finite loss", None, None, None, None]


def first_step_with_norm(world, is_frozen, is_trained):
    model = Toy()
    model.norm = BatchNorm(4, is_frozen=is_frozen).requires_grad_(is_trained)
    share_weights(model, world)
    optimizer = make_optimizer("adamw", model, 1e-2, 0.01, (0.9, 0.98))
    return next(take_steps(model, optimizer, loaded(world), rules(), TrainingProgress(), world, lambda: False)).loss


@pytest.mark.parametrize(("is_frozen", "is_trained"), [(True, True), (False, False)])
def test_batch_norms_whose_statistics_stay_are_no_obstacle_to_shared_weights(is_frozen, is_trained):
    assert all(loss > 0 for loss in run_ranks(2, first_step_with_norm, is_frozen, is_trained))


def test_batch_norms_whose_statistics_follow_the_data_are_refused_where_weights_are_shared():
    with pytest.raises(ConfigError, match="Set model.batch_norm=frozen"):
        run_ranks(2, first_step_with_norm, False, True)


def units_with_stack_in_stack(world):
    """ContextNet's blocks have stacks of their own."""
    model, block = Toy(), nn.Module()
    block.mconv = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    model.blocks = nn.ModuleList([block])
    share_weights(model, world)
    return [name for name, module in model.named_modules() if has_slices(module)]


def test_a_stack_within_a_layer_is_shared_with_the_layer():
    assert run_ranks(2, units_with_stack_in_stack) == [["", "blocks.0"]] * 2


def test_a_skipped_step_leaves_the_weights_alone():
    model = Toy()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = make_optimizer("adamw", model, 1e-2, 0.0, (0.9, 0.98))
    poisoned = loaded(World.alone(), poison=frozenset(range(UTTERANCES)))
    step = next(take_steps(model, optimizer, poisoned, rules(), TrainingProgress(), World.alone(), lambda: False))
    assert step.skipped and all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_training_stops_after_the_patience_with_what_to_do():
    with pytest.raises(TrainingError, match="3 steps in a row"):
        train(World.alone(), poison=frozenset(range(UTTERANCES)))


def test_a_stop_request_on_one_rank_reaches_all_at_the_same_step():
    for steps in run_ranks(2, stop_on_rank_one_at_step_three):
        assert [step.stop_requested for step in steps] == [False, False, True, True]


def stop_on_rank_one_at_step_three(world):
    model, asked = Toy(), []

    def stop():
        asked.append(None)
        return world.rank == 1 and len(asked) >= 3

    optimizer = make_optimizer("adamw", model, 1e-2, 0.0, (0.9, 0.98))
    stepper = take_steps(model, optimizer, loaded(world), rules(), TrainingProgress(), world, stop)
    return [next(stepper) for _ in range(4)]


def test_clipping_bounds_the_step_but_not_the_reported_norm():
    _, free = train(World.alone(), steps=1)
    assert free[0].gradient_norm > 0.1
    model = Toy()
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    settings = rules(clip=0.1, schedule=Schedule(1.0, 30, 0, "constant"))
    step = next(
        take_steps(model, optimizer, loaded(World.alone()), settings, TrainingProgress(), World.alone(), lambda: False)
    )
    moved = torch.cat([p.detach().flatten() for p in model.parameters()]) - before
    assert step.gradient_norm == pytest.approx(free[0].gradient_norm)
    assert float(torch.linalg.vector_norm(moved)) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_narrow_precision_learns_about_the_same(precision):
    wide, narrow = train(World.alone())[1][-1].loss, train(World.alone(), precision=precision)[1][-1].loss
    assert math.isfinite(narrow) and narrow == pytest.approx(wide, rel=0.05)


def test_the_loss_scale_halves_on_overflow_and_doubles_after_a_long_calm():
    assert LossScale(1024.0, 5).after(overflowed=True) == LossScale(512.0, 0)
    assert LossScale(1024.0, 1998).after(overflowed=False) == LossScale(1024.0, 1999)
    assert LossScale(1024.0, 1999).after(overflowed=False) == LossScale(2048.0, 0)
    assert LossScale(1.0, 0).after(overflowed=True).value == 1.0


def test_a_micro_remembers_where_the_step_ends():
    first = next(micros_from(Position(7, 0, 2), plan, 0, 1, False))
    assert isinstance(first, MicroBatchPlan) and first.position == Position(8, 0, 3)

"""Does a model train to the same bits on any number of ranks, and after `kill -9`? With the loop and the checkpoints
of a run, on a few rows."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from attune.batches.collate import collate
from attune.batches.load import micros_from
from attune.batches.micro_batch import LoadedMicroBatch, Position
from attune.batches.plan import Budget, Plan, plan_epoch
from attune.contracts import SpeechModel
from attune.testing.ranks import run_killed, run_ranks
from attune.training import checkpoint
from attune.training.loop import StepRules, take_steps
from attune.training.optimizer import load_state_by_name, make_optimizer, state_by_name
from attune.training.progress import TrainingProgress
from attune.training.schedule import Schedule
from attune.training.settings import BETAS
from attune.types import LoadedRow
from attune.world import World

STEPS, KILLED_AFTER, MICROS = 3, 2, 4
RULES = StepRules(17, Schedule(1e-3, STEPS, 0, "constant"), "fp32", 1.0, strict=True, nonfinite_patience=STEPS)
RANKS = (2, 4)

Weights = dict[str, Tensor]
Build = Callable[[], SpeechModel]


def check_training(build: Build, rows: Sequence[LoadedRow]) -> Iterator[str]:
    """A sentence for each way of training that ends in other weights. `build` gives the same model every time."""
    alone = train(World.alone(), build, rows)
    for ranks in RANKS:
        if any(_differ(alone, each) for each in run_ranks(ranks, train, build, rows)):
            yield f"ranks: {STEPS} steps on {ranks} ranks end in other weights than on one"
    with tempfile.TemporaryDirectory() as name:
        code = run_killed(train, build, rows, Path(name, "checkpoints"), KILLED_AFTER)
        if code != -signal.SIGKILL:
            yield f"resume: training in a process of its own ended with exit code {code}"
        elif _differ(alone, train(World.alone(), build, rows, Path(name, "checkpoints"))):
            yield f"resume: killed after {KILLED_AFTER} steps and resumed, training ends in other weights"


def train(
    world: World,
    build: Build,
    rows: Sequence[LoadedRow],
    checkpoints: Path | None = None,
    killed_after: int | None = None,
) -> Weights:
    """The weights after a few steps, from the newest checkpoint if there are any."""
    model = build()
    module = cast(nn.Module, model)
    optimizer = make_optimizer("adamw", module, RULES.schedule.lr, 0.01, BETAS)
    progress = _resume(module, optimizer, checkpoints) if checkpoints else TrainingProgress()
    micros = _micros(rows, progress.position, world)
    for step in take_steps(model, optimizer, micros, RULES, progress, world, lambda: False):
        if checkpoints:
            saved = checkpoint.Checkpoint(module.state_dict(), state_by_name(optimizer, module), step.progress)
            checkpoint.save(checkpoints, saved)
        if step.progress.position.step == killed_after:
            os.kill(os.getpid(), signal.SIGKILL)
    return {name: each.detach().clone() for name, each in module.state_dict().items()}


def _resume(module: nn.Module, optimizer: torch.optim.Optimizer, checkpoints: Path) -> TrainingProgress:
    newest, _ = checkpoint.newest(checkpoints)
    if newest is None:
        return TrainingProgress()
    saved = checkpoint.read(newest)
    module.load_state_dict(dict(saved.model))
    load_state_by_name(optimizer, module, saved.optimizer)
    return saved.progress


def _micros(rows: Sequence[LoadedRow], start: Position, world: World) -> Iterator[LoadedMicroBatch]:
    """What a rank trains on: every step has all rows, in `MICROS` micro-batches."""
    seconds = np.array([float(len(row.audio)) for row in rows])

    def plan(epoch: int) -> Plan:
        return plan_epoch(seconds, np.arange(len(rows)), Budget(None, -(-len(rows) // MICROS), MICROS), 17, epoch)

    for micro in micros_from(start, plan, world.rank, world.size, aligned=True):
        own = [rows[int(row)] for row in micro.rows]
        yield LoadedMicroBatch(micro, collate(own) if own else None)


def _differ(one: Weights, other: Weights) -> bool:
    return any(not torch.equal(one[name], other[name]) for name in one)

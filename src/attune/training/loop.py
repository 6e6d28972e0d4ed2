"""The training loop: a generator over optimizer steps. The caller logs, evaluates, saves or stops.

A step is the recipe's, not the machine's: its micro-batches are shared out to the ranks, their losses are sums, and
the division by the count of the whole step happens once. Dropout is seeded by (seed, step, slot), so a micro-batch
computes the same thing whichever rank it is on.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import torch

from attune.batches.load import Loaded, Position
from attune.errors import TrainingError
from attune.seeds import derive
from attune.training.gradients import Gradients, Tree, sum_in_tree
from attune.training.memory import is_out_of_memory, out_of_memory
from attune.training.micro import Backward, Eager, backward_of
from attune.training.optimizer import Moves, set_lr
from attune.training.precision import LossScale
from attune.training.schedule import Schedule
from attune.training.sharding import Idle
from attune.types import SAMPLE_RATE, Loss
from attune.world import World


@dataclass(frozen=True, slots=True)
class Rules:
    """How to take a step."""

    seed: int
    schedule: Schedule
    precision: str
    clip: float
    strict: bool
    nonfinite_patience: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What training has come to, beside weights and optimizer: all of it goes into the checkpoint."""

    position: Position = Position()
    scale: LossScale = LossScale()
    skipped: int = 0
    skipped_in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step, as the caller sees it; the same on every rank."""

    progress: Progress
    loss: float  # per counted unit
    lr: float
    gradient_norm: float
    audio_seconds: float
    skipped: str | None  # why the weights were left as they were
    stop_requested: bool
    skipped_ids: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sums:
    """What all ranks add up in a step."""

    loss: float
    count: float
    samples: float
    nonfinite: float
    stops: float
    dropped: float
    starved: float


def take_steps(
    model: Any,
    optimizer: Moves,
    micros: Iterator[Loaded],
    rules: Rules,
    progress: Progress,
    world: World,
    stop_requested: Callable[[], bool],
) -> Iterator[Step]:
    """Train from `progress` to the end of the schedule, yielding after each optimizer step."""
    gradients = Gradients(p for p in model.parameters() if p.requires_grad)
    idle = Idle(world) if gradients.are_slices else None
    # Ranks that share the weights meet in every layer, which no graph can hold.
    make = Eager if idle else partial(backward_of, gradients=gradients.flat)
    backward: Backward = make(model=model, precision=rules.precision, device=world.device)
    for position, group in groupby(micros, key=lambda loaded: loaded.micro.position):
        model.train()
        slots = list(group)
        gradients.clear()
        for batch in idle.runs(slots) if idle else ():
            backward(batch, 0.0)  # adds nothing of its own, but its backward brings this rank's slices of the others'
        sums, bad = _add_up(backward, gradients, slots, rules, progress.scale, world, stop_requested())
        if sums.starved:
            raise out_of_memory(position.step, int(sums.starved), world.size, _all(world, bad))
        lr = rules.schedule.at(position.step)
        norm = _settle(gradients, sums, rules, progress.scale, world)
        skipped = None if math.isfinite(norm) and not sums.nonfinite else _reason(sums, progress.scale)
        if skipped is None:
            set_lr(optimizer, lr)
            optimizer.step()
        progress = _after(progress, position, rules, skipped)
        yield Step(
            progress,
            loss=sums.loss / max(sums.count, 1.0),
            lr=lr,
            gradient_norm=norm,
            audio_seconds=sums.samples / SAMPLE_RATE,
            skipped=skipped,
            stop_requested=sums.stops > 0,
            skipped_ids=_all(world, bad or _ids(slots)) if skipped else (),
            dropped=_all(world, tuple(dropped.reason for slot in slots for dropped in slot.dropped))
            if sums.dropped
            else (),
        )
        _check_patience(progress, rules)
        if position.step >= rules.schedule.steps:
            return


def _add_up(
    backward: Backward,
    gradients: Gradients,
    slots: list[Loaded],
    rules: Rules,
    scale: LossScale,
    world: World,
    stop: bool,
) -> tuple[_Sums, tuple[str, ...]]:
    """Run this rank's micro-batches and add everything up over the ranks; also, the ids that were too much for it."""
    tree = Tree()
    losses: list[tuple[Loaded, Loss]] = []
    starved: list[Loaded] = []
    for slot in slots:
        if slot.batch is not None:
            torch.manual_seed(derive(rules.seed, "dropout", slot.micro.position.step, slot.micro.slot))
            try:
                losses.append((slot, backward(slot.batch, scale.value)))
            except (MemoryError, RuntimeError) as error:
                if gradients.are_slices or not is_out_of_memory(error):
                    raise  # ranks that share weights are in the midst of a layer, and cannot be told in order
                starved.append(slot)  # the others have to know: this rank comes to the sums as if nothing were wrong
                break
        if rules.strict:
            tree.add(gradients.take() if slot.batch is not None else None)
    if rules.strict:
        gradients.put(tree.total())
        sum_in_tree(world, gradients.flat)
    elif not gradients.are_slices:
        world.sum(gradients.flat)
    totals = torch.stack([loss.total for _, loss in losses]).tolist() if losses else []
    bad = [slot for (slot, _), total in zip(losses, totals, strict=True) if not math.isfinite(total)]
    mine = [
        sum(totals),
        sum(float(loss.count) for _, loss in losses),
        sum(float(slot.batch.lengths.sum()) for slot in slots if slot.batch is not None),
        float(len(bad)),
        float(stop),
        float(sum(len(slot.dropped) for slot in slots)),
        float(bool(starved)),
    ]
    sums = world.sum(torch.tensor(mine, dtype=torch.float64, device=world.device)).tolist()
    return _Sums(*sums), _ids(starved or bad)


def _settle(gradients: Gradients, sums: _Sums, rules: Rules, scale: LossScale, world: World) -> float:
    """Divide the summed gradient once, clip it, and return its norm before clipping."""
    gradients.flat.div_(max(sums.count, 1.0) * scale.value)
    norm = gradients.norm(world)
    if norm > rules.clip:
        gradients.flat.mul_(rules.clip / (norm + 1e-6))
    return norm


def _reason(sums: _Sums, scale: LossScale) -> str:
    if sums.nonfinite:
        return "non-finite loss"
    return "fp16 overflow" if scale.value > 1.0 else "non-finite gradient"


def _after(progress: Progress, position: Position, rules: Rules, skipped: str | None) -> Progress:
    scale = progress.scale.after(overflowed=skipped is not None) if rules.precision == "fp16" else progress.scale
    if skipped is None:
        return Progress(position, scale, progress.skipped, 0)
    # A falling loss scale is how fp16 finds its range; it does not try anybody's patience.
    in_a_row = progress.skipped_in_a_row + (skipped != "fp16 overflow")
    return Progress(position, scale, progress.skipped + 1, in_a_row)


def _check_patience(progress: Progress, rules: Rules) -> None:
    if progress.skipped_in_a_row >= rules.nonfinite_patience:
        raise TrainingError(
            f"{progress.skipped_in_a_row} steps in a row had non-finite losses or gradients; stopped at step "
            f"{progress.position.step}. log.jsonl names their utterances. Lower optimizer.lr, or look at that audio."
        )


def _ids(slots: list[Loaded]) -> tuple[str, ...]:
    return tuple(name for slot in slots if slot.batch is not None for name in slot.batch.ids)


def _all(world: World, mine: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(item for part in world.gather(mine) for item in part)

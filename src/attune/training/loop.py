"""The training loop: a generator over optimizer steps. The caller logs, evaluates, saves or stops.

A step is the recipe's, not the machine's: its micro-batches are shared out to the ranks, their losses are sums, and
the division by the count of the whole step happens once. Dropout is seeded by (seed, step, slot), so a micro-batch
computes the same thing whichever rank it is on.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from attune.batches.micro_batch import LoadedMicroBatch, Position
from attune.contracts import EpochScheduledModel, SpeechModel, StepStatistics
from attune.errors import ConfigError, TrainingError
from attune.seeds import derive
from attune.training.gradients import Gradients, Tree, sum_in_tree
from attune.training.memory import is_out_of_memory, out_of_memory
from attune.training.micro import Backward, Eager, backward_of
from attune.training.optimizer import OptimizerLike, set_lr
from attune.training.pace import RankTime, StepTimer
from attune.training.precision import LossScale
from attune.training.progress import TrainingProgress
from attune.training.schedule import Schedule
from attune.training.sharding import Idle
from attune.types import SAMPLE_RATE, Loss
from attune.world import World


@dataclass(frozen=True, slots=True)
class StepRules:
    """How to take a step."""

    seed: int
    schedule: Schedule
    precision: str
    clip: float
    strict: bool
    nonfinite_patience: int
    anneal: Callable[[], float] = lambda: 1.0  # the part of the scheduled rate that the dev scores so far leave


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One optimizer step, as the caller sees it; the same on every rank, apart from its time."""

    progress: TrainingProgress
    loss: float  # per counted unit
    lr: float
    gradient_norm: float
    audio_seconds: float
    skipped: str | None  # why the weights were left as they were
    stop_requested: bool
    skipped_ids: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    time: RankTime = RankTime()  # this rank's


@dataclass(frozen=True, slots=True)
class _Sums:
    """What all ranks have added up in a step, and the norm of their gradient before clipping."""

    loss: float
    count: float
    samples: float
    nonfinite: float
    stops: float
    dropped: float
    starved: float
    norm: float


@dataclass(frozen=True, slots=True)
class _Ran:
    """What this rank's micro-batches came to; the ids of one that its memory did not hold."""

    losses: list[tuple[LoadedMicroBatch, Loss]]
    starved: tuple[str, ...]


def take_steps(
    model: SpeechModel,
    optimizer: OptimizerLike,
    micros: Iterator[LoadedMicroBatch],
    rules: StepRules,
    progress: TrainingProgress,
    world: World,
    stop_requested: Callable[[], bool],
) -> Iterator[TrainingStep]:
    """Train from `progress` to the end of the schedule, yielding after each optimizer step."""
    tallied = [module for module in model.modules() if isinstance(module, StepStatistics)]
    gradients = Gradients((p for p in model.parameters() if p.requires_grad), tallied)
    idle = _idle(gradients, world)
    # Ranks that share the weights meet in every layer, which no graph can hold.
    backward: Backward = (Eager if idle else backward_of)(model, rules.precision, world.device)
    timer = StepTimer(world.device)
    steps = (list(group) for _, group in groupby(micros, key=lambda loaded: loaded.micro.position))
    following = next(steps, [])
    while following:
        slots, position = following, following[0].micro.position
        if not model.training:
            model.train()  # the caller may have scored it; a walk through all modules is not for every step
        if isinstance(model, EpochScheduledModel):
            model.set_epoch(position.epoch)
        gradients.clear()
        for batch in idle.runs(slots) if idle else ():
            backward(batch, 0.0)  # adds nothing of its own, but its backward brings this rank's slices of the others'
        with timer.computing():
            ran = _run_micros(backward, gradients, slots, rules, progress.scale, world.device)
        _sum_gradients(gradients, rules, world)
        sums = _add_up(slots, ran, world, stop_requested())
        norm = _settle(gradients, sums[1], rules, progress.scale, world)
        # The device is busy: now is the time to fetch what comes next.
        with timer.loading():
            following = next(steps, []) if position.step < rules.schedule.steps else []
        # The one look at the device in a step: until here work is only queued.
        seen = _Sums(*torch.cat([sums, norm.double()[None]]).tolist())
        if seen.starved:
            raise out_of_memory(position.step, int(seen.starved), world.size, _all(world, ran.starved))
        lr = rules.schedule.at(position.step) * rules.anneal()
        skipped = None if math.isfinite(seen.norm) and not seen.nonfinite else _reason(seen, progress.scale)
        if skipped is None:
            set_lr(optimizer, lr)
            optimizer.step()
            gradients.settle()
        elif idle:
            idle.forget()
        progress = _after(progress, position, rules, skipped)
        yield TrainingStep(
            progress,
            loss=seen.loss / max(seen.count, 1.0),
            lr=lr,
            gradient_norm=seen.norm,
            audio_seconds=seen.samples / SAMPLE_RATE,
            skipped=skipped,
            stop_requested=seen.stops > 0,
            skipped_ids=_all(world, _nonfinite_ids(ran) or _ids(slots)) if skipped else (),
            dropped=_all(world, tuple(dropped.reason for slot in slots for dropped in slot.dropped))
            if seen.dropped
            else (),
            time=timer.read(len(ran.losses)),
        )
        _check_patience(progress, rules)


def _idle(gradients: Gradients, world: World) -> Idle | None:
    """What keeps ranks that share the weights in step."""
    if gradients.are_slices and gradients.has_statistics:
        raise ConfigError(
            "train.shard=full does not work with trainable batch norm statistics. Set model.batch_norm=frozen, "
            "or train.shard=optimizer."
        )
    return Idle(world) if gradients.are_slices else None


def _run_micros(
    backward: Backward,
    gradients: Gradients,
    slots: list[LoadedMicroBatch],
    rules: StepRules,
    scale: LossScale,
    device: torch.device,
) -> _Ran:
    """Run this rank's micro-batches."""
    tree = Tree()
    losses: list[tuple[LoadedMicroBatch, Loss]] = []
    starved: tuple[str, ...] = ()
    for slot in slots:
        if slot.batch is not None:
            _seed_dropout(derive(rules.seed, "dropout", slot.micro.position.step, slot.micro.slot), device)
            try:
                losses.append((slot, backward(slot.batch, scale.value)))
            except (MemoryError, RuntimeError) as error:
                if gradients.are_slices or not is_out_of_memory(error):
                    raise  # ranks that share weights are in the midst of a layer, and cannot stop in order
                # The others have to know: this rank comes to the sums as if nothing were wrong.
                starved = slot.batch.ids
                break
        if rules.strict:
            tree.add(gradients.take() if slot.batch is not None else None)
    if rules.strict:
        gradients.put(tree.total())
    return _Ran(losses, starved)


def _sum_gradients(gradients: Gradients, rules: StepRules, world: World) -> None:
    """Add up the gradient over the ranks; slices have been, in every layer."""
    if rules.strict:
        sum_in_tree(world, gradients.flat)
    elif not gradients.are_slices:
        world.sum(gradients.flat)


def _seed_dropout(seed: int, device: torch.device) -> None:
    """As `torch.manual_seed`, which also notes down who called it for each kind of device that is not there."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)


def _add_up(slots: list[LoadedMicroBatch], ran: _Ran, world: World, stop: bool) -> Tensor:
    """The sums of all ranks (7,), in the order of `_Sums`, still on the device."""
    samples = sum(float(slot.batch.lengths.sum()) for slot in slots if slot.batch is not None)
    dropped = float(sum(len(slot.dropped) for slot in slots))
    sums = torch.zeros(7, dtype=torch.float64, device=world.device)
    for place, known in ((2, samples), (4, float(stop)), (5, dropped), (6, float(bool(ran.starved)))):
        sums[place] += known  # a copy of host memory would wait for the device
    for _, loss in ran.losses:
        sums[0] += loss.total
        sums[1] += loss.count
        sums[3] += ~loss.total.isfinite()
    return world.sum(sums)


def _settle(gradients: Gradients, count: Tensor, rules: StepRules, scale: LossScale, world: World) -> Tensor:
    """Divide the summed gradient once, clip it, and return its norm before clipping."""
    gradient = gradients.gradient  # in main memory where weights are offloaded
    gradient.div_((count.clamp(min=1) * scale.value).to(gradient.device))
    norm = gradients.norm(world)
    gradient.mul_(torch.where(norm > rules.clip, rules.clip / (norm + 1e-6), 1.0).to(gradient.device))
    return norm


def _reason(sums: _Sums, scale: LossScale) -> str:
    if sums.nonfinite:
        return "non-finite loss"
    return "fp16 overflow" if scale.value > 1.0 else "non-finite gradient"


def _after(progress: TrainingProgress, position: Position, rules: StepRules, skipped: str | None) -> TrainingProgress:
    scale = progress.scale.after(overflowed=skipped is not None) if rules.precision == "fp16" else progress.scale
    if skipped is None:
        return TrainingProgress(position, scale, progress.skipped, 0)
    # A falling loss scale is how fp16 finds its range; it does not try anybody's patience.
    in_a_row = progress.skipped_in_a_row + (skipped != "fp16 overflow")
    return TrainingProgress(position, scale, progress.skipped + 1, in_a_row)


def _check_patience(progress: TrainingProgress, rules: StepRules) -> None:
    if progress.skipped_in_a_row >= rules.nonfinite_patience:
        raise TrainingError(
            f"{progress.skipped_in_a_row} steps in a row had a non-finite loss or gradient; stopped at step "
            f"{progress.position.step}. Lower optimizer.lr, or check the audio of the utterances listed in "
            "log.jsonl."
        )


def _nonfinite_ids(ran: _Ran) -> tuple[str, ...]:
    return _ids([slot for slot, loss in ran.losses if not loss.total.isfinite()])


def _ids(slots: list[LoadedMicroBatch]) -> tuple[str, ...]:
    return tuple(name for slot in slots if slot.batch is not None for name in slot.batch.ids)


def _all(world: World, mine: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(item for part in world.gather(mine) for item in part)

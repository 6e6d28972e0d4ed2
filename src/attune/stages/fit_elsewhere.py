"""Memory on machines that are not here: a step without memory, and what is left of it on each of several devices.

The step is walked once, for one device. What ranks share is arithmetic: see `training.sharding`.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from attune.contracts import StepStatistics
from attune.errors import ConfigError
from attune.loading.begin import begin_model
from attune.loading.data import open_split, planner, training_reader, training_rows, worst_micro_batch
from attune.loading.pretrained import ModelFolders
from attune.recipe import Recipe
from attune.site import Site
from attune.stages.fit import ROOM
from attune.training.deferred import Deferred
from attune.training.gradients import Gradients
from attune.training.micro import Eager
from attune.training.optimizer import make_optimizer
from attune.training.settings import OptimizerConfig
from attune.training.sharding import layers_of
from attune.training.walk import PLACE, MemoryWalk, strip_memory
from attune.types import Batch
from attune.world import World

IN_FLIGHT = 2  # layers that are whole at once: the one that computes, and the next


@dataclass(frozen=True, slots=True)
class WalkedStep:
    """What one device needs for a step, in bytes."""

    weights: int
    gradients: int
    state: int  # of the optimizer
    activations: int  # at most, with all that is temporary
    rest: int  # weights outside layers, which stay whole during a step
    layer: int  # weights of the largest layer
    trained: float  # share of the weights

    @property
    def slices(self) -> int:
        """What ranks can share."""
        return self.weights + self.gradients + self.state

    def on_device(self, shard: str, offload: bool, ranks: int) -> int:
        """What each of so many devices needs."""
        kept = self.weights + self.gradients
        if shard == "none" or (ranks == 1 and not offload):
            return kept + self.state + self.activations
        if shard == "optimizer":
            own = self.gradients // ranks  # of the weights, to be sent
            return kept + self.state // ranks + max(self.activations, own)
        whole = self.weights if shard == "gradients" else self.rest + IN_FLIGHT * self.layer
        unreduced = int(self.trained * IN_FLIGHT * self.layer)  # gradients; of the rest, they are among the activations
        return (0 if offload else self.slices // ranks) + whole + unreduced + self.activations

    def on_host(self, offload: bool, ranks: int) -> int:
        """What a rank keeps in main memory."""
        return self.slices // ranks if offload else 0


@dataclass(frozen=True, slots=True)
class Placement:
    """What a way of sharing needs, in bytes."""

    shard: str
    offload: bool
    device: int
    host: int
    fits: bool
    is_own: bool  # the recipe's


@dataclass(frozen=True, slots=True)
class FitElsewhere:
    """The worst micro-batch of a recipe on devices that are not here."""

    devices: int
    memory: int
    utterances: int
    seconds: float  # padded
    step: WalkedStep
    placements: tuple[Placement, ...]

    @property
    def fits(self) -> bool:
        """Whether the recipe as it is should run there."""
        return any(each.fits for each in self.placements if each.is_own)


def fit_elsewhere(recipe: Recipe, site: Site, devices: int, memory: int) -> FitElsewhere:
    """Estimate the worst micro-batch of the first epoch on so many devices with so many bytes each."""
    world = World.alone()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpus = open_split(recipe, "train", folder, site, world)
        worst = worst_micro_batch(corpus, planner(recipe, corpus, training_rows(recipe, corpus))(0))
        folders = ModelFolders(folder / "task", folder / "assets")
        loaded = begin_model(recipe, corpus, folders, site, world, deferred=Deferred(draws=False)).loaded
        batch, _ = training_reader(recipe, corpus, loaded, site).read(worst.rows)
        step = walk_step(loaded.task_model.module, batch, recipe.optimizer, recipe.train.precision)
    own = (recipe.train.shard, recipe.train.offload)
    placements = place(step, devices, memory, own)
    return FitElsewhere(devices, memory, len(worst.rows), worst.padded_seconds, step, placements)


def place(step: WalkedStep, devices: int, memory: int, own: tuple[str, bool]) -> tuple[Placement, ...]:
    """Every way of sharing that so many devices have, the recipe's own among them."""
    shared = [("optimizer", False), ("gradients", False), ("full", False)] if devices > 1 else []
    ways = [("none", False), *shared, ("gradients", True), ("full", True)]
    ways += [own] if own not in ways else []
    return tuple(_place(step, way, devices, memory, way == own) for way in ways)


def _place(step: WalkedStep, way: tuple[str, bool], devices: int, memory: int, is_own: bool) -> Placement:
    device, host = step.on_device(*way, devices), step.on_host(way[1], devices)
    return Placement(*way, device, host, device <= ROOM * memory, is_own)


def walk_step(model: nn.Module, batch: Batch | None, settings: OptimizerConfig, precision: str) -> WalkedStep:
    """Take a step with a model whose tensors, from now on, have no memory."""
    walk = MemoryWalk()
    strip_memory(model, walk)
    trained = [each for each in model.parameters() if each.requires_grad]
    began = walk.now
    with walk:
        optimizer = make_optimizer(settings.name, model, 0.0, 0.0, settings.betas)
        gradients = Gradients(trained, [module for module in model.modules() if isinstance(module, StepStatistics)])
        optimizer.step()
        before, stepping = walk.now, walk.peak
        walk.peak = before
        if batch is not None:
            shapes = replace(batch, audio=walk.without_memory(batch.audio))
            _run(Eager(model.train(), precision, PLACE), shapes)  # type: ignore[arg-type]
    weights = _bytes(model.parameters()) + _bytes(model.buffers())
    layers = layers_of(model)
    inside = {each for layer in layers for each in layer.parameters()}
    return WalkedStep(
        weights=weights,
        gradients=gradients.flat.nbytes,
        state=before - began - gradients.flat.nbytes,
        activations=max(walk.peak, stepping) - before,
        rest=_bytes(each for each in model.parameters() if each not in inside),
        layer=max((_bytes(layer.parameters()) for layer in layers), default=0),
        trained=_bytes(trained) / max(1, weights),
    )


def _run(backward: Eager, batch: Batch) -> None:
    try:
        backward(batch, 1.0)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # of an operation that needs real tensors
        raise ConfigError(
            "--memory cannot estimate this model. Use --fit alone, on a machine with such a device; for a frozen "
            "upstream, set train.precision=fp32."
        ) from error


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(each.nbytes for each in tensors)

"""The learning rate that a recipe means, and what a change of its schedule does to it."""

from collections.abc import Sequence
from dataclasses import replace

from attune.recipe import Difference, Recipe
from attune.training.loop import TrainingProgress
from attune.training.schedule import Schedule

SCHEDULE_FIELDS = {
    "train.steps": "steps",
    "train.warmup": "warmup",
    "train.schedule": "shape",
    "train.restart_every": "restart_every",
    "optimizer.lr": "lr",
}


def schedule_of(recipe: Recipe) -> Schedule:
    """The learning rate as the recipe has it."""
    settings = recipe.train
    return Schedule(recipe.optimizer.lr, settings.steps, settings.warmup, settings.schedule, settings.restart_every)


def changed_rates(
    changes: Sequence[Difference], recipe: Recipe, progress: TrainingProgress
) -> tuple[tuple[Difference, float, float], ...]:
    """What a changed schedule does to the learning rate of the next step: the change, the old rate and the new."""
    step = progress.position.step + 1
    new = schedule_of(recipe)
    old = replace(new, **{SCHEDULE_FIELDS[change.key]: change.old for change in changes})  # type: ignore[arg-type]
    return tuple((change, old.at(step), new.at(step)) for change in changes)

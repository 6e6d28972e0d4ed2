"""Checkpoints of a training: whole ones while it waits, those of ranks that share the weights beside it."""

from collections.abc import Iterator
from pathlib import Path

from attune.stages.context import Saved, TrainingContext
from attune.training import checkpoint
from attune.training.checkpoint import Checkpoint
from attune.training.sharding import whole_state, whole_weights


def save(training: TrainingContext, state: Checkpoint) -> Iterator[Saved]:
    """Save the model as it is, with what `state` has beside tensors; in shards, it is only begun here."""
    if training.saver:
        yield from settle(training)
        training.saver.begin(state)
        return
    model = training.loaded.task_model.module
    weights, optimizer = whole_weights(model), whole_state(training.optimizer, model, training.world)
    if training.world.is_first:
        folder = checkpoint.save(training.run.checkpoints, state.with_tensors(weights, optimizer))
        yield from _note(training, state, folder)


def settle(training: TrainingContext, waits: bool = True) -> Iterator[Saved]:
    """See a save that goes on beside training to its end; without `waits`, only if it is written."""
    saver = training.saver
    if saver is None or not saver.is_saving or not (waits or saver.is_written):
        return
    state, folder = saver.finish()
    if training.world.is_first:
        yield from _note(training, state, folder)
    publish(training)


def publish(training: TrainingContext) -> None:
    """Remove what is not kept, and have the run's place know what is new."""
    best = training.run.best()
    if training.world.is_first:
        training.place.catch_up()
        checkpoint.prune(training.run.checkpoints, training.recipe.train.keep_last, {best.step} if best else set())
    training.place.publish()


def _note(training: TrainingContext, state: Checkpoint, folder: Path) -> Iterator[Saved]:
    """A best checkpoint is on disk before it is called the best."""
    step = state.progress.position.step
    training.log.write("saved", step=step)
    yield Saved(step, folder)
    training.offer_best(state.scores, step)

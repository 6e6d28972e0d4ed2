"""The end of a training: the model it comes to, exported and scored."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from attune.report.predictions import write_predictions
from attune.stages.assemble import Pretrained, assemble, export, load_weights, open_pretrained
from attune.stages.data import open_split
from attune.stages.evaluate import as_scored, evaluate, evaluation_batches
from attune.stages.events import Evaluated, Event, Finished
from attune.stages.underway import Underway, log_scores
from attune.training import checkpoint
from attune.training.adapt import merge_lora
from attune.training.average import average


def finish(training: Underway, before: int) -> Iterator[Event]:
    """Export the best checkpoint, the last or the mean of some, and score it with the final search."""
    recipe, run, world = training.recipe, training.run, training.world
    world.barrier()  # the first rank may still be writing the last checkpoint
    chosen = open_pretrained(run.folder)
    # Built anew: what training added to the model (LoRA) is now in its weights.
    training = replace(training, assembled=assemble(recipe, run.task, run.assets))
    model = training.assembled.built.model
    load_weights(model, _final_tensors(training, chosen), chosen.weights)
    model.to(world.device)
    if training.journal:
        export(run.model, recipe, run, model)
    if recipe.train.eval_utterances:
        yield from _score_all_of("dev", training, chosen.step)
    if recipe.data.test:
        yield from _score_all_of("test", training, chosen.step)
    if training.journal:
        training.journal.close()
    yield Finished(run, chosen.step or 0, recipe.train.steps - before)


def _score_all_of(split: str, training: Underway, step: int | None) -> Iterator[Event]:
    """Decode a whole split with the final search, and keep predictions and scores with the run."""
    recipe, run, world = training.recipe, training.run, training.world
    corpus = as_scored(open_split(recipe, split, run.data, training.site, world), training.assembled, recipe)
    batches = evaluation_batches(training.assembled, corpus, None, recipe, training.site, world)
    evaluation = yield from evaluate(
        training.assembled, corpus, batches, training.final_search, world, training.stop_requested
    )
    if training.journal:
        write_predictions(run.predictions(split), evaluation.predictions)
        run.add_scores(split, {**evaluation.as_json(), "step": step})
    log_scores(training, step or 0, evaluation, False)
    yield Evaluated(step or 0, evaluation)


def _final_tensors(training: Underway, chosen: Pretrained) -> Mapping[str, Tensor]:
    count = training.recipe.train.average
    if count is None:
        return chosen.tensors()
    folders = checkpoint.sound(training.run.checkpoints)[-count:]
    return average(folders, plain=lambda tensors: merge_lora(tensors, training.recipe.adapt))

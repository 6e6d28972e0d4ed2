"""The end of a training: the model it comes to, exported and scored."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from attune.catalog import FAMILIES, NORMALIZERS, find
from attune.contracts import TunedTask
from attune.corpora import sample_corpus
from attune.loading.data import open_split
from attune.loading.pretrained import LoadedModel, build_model, export, load_weights, open_pretrained
from attune.loading.sharing import decoding_world, deferral, share_model, usable
from attune.report.comparison import System, compare, describe_change
from attune.report.predictions import read_predictions, write_predictions
from attune.report.sets import kind_of, text_metric
from attune.report.tables import describe_score, scores_from_json
from attune.run_report import BEFORE, save_report
from attune.scoring.accuracy import ACCURACY
from attune.stages.context import (
    Evaluated,
    Event,
    Finished,
    TrainingContext,
    log_scores,
)
from attune.stages.evaluate import (
    Evaluation,
    as_scored,
    evaluate,
    evaluation_batches,
    scoring_context,
)
from attune.training import checkpoint
from attune.training.adapt import merge_lora
from attune.training.average import average
from attune.training.sharding import has_slices
from attune.types import ScoringContext


def finish(training: TrainingContext, before: int, last: int) -> Iterator[Event]:
    """Export the best checkpoint, the last or the mean of some, and score it with the final search.

    This command has taken the steps after `before` up to `last`.
    """
    recipe, run, world = training.recipe, training.run, training.world
    training.place.share(world)  # the first rank may still be writing the last checkpoint
    if recipe.train.average or training.saver:
        training.place.fetch_tensors()
    final = _choose(training)
    training = replace(training, loaded=_load_final(final, training))
    model = training.loaded.task_model
    if recipe.data.dev and isinstance(training.loaded.task, TunedTask):
        yield from _tune(training.loaded.task, training)
    if world.is_first:
        weights = final.tensors if has_slices(model.module) else None
        export(run.model, recipe, run, model, watch=training.site.cache.watch, weights=weights)
    if recipe.train.eval_utterances:
        yield from _score_all_of("dev", training, final.steps[-1])
    if recipe.data.test:
        yield from _score_all_of("test", training, final.steps[-1])
    if recipe.data.retained:
        yield from _score_all_of("retained", training, final.steps[-1])
    averaged = final.steps if recipe.train.average else ()
    stalled_at = last if last < recipe.train.last_step else None
    report = _write_report(training) if world.is_first else None
    world.barrier()  # a rank that leaves early is taken for lost
    yield Finished(
        run=run,
        report=report,
        failures=tuple(training.log.failures),
        retained=_retained_line(training) if world.is_first and recipe.data.retained else "",
        recipe=recipe,
        best_step=final.steps[-1],
        steps_taken=last - before,
        averaged=averaged,
        stalled_at=stalled_at,
    )


def score_before(training: TrainingContext, new_tensors: Sequence[str], step: int) -> Iterator[Event]:
    """Score the retained sets with the model that a run begins with, if that is a pretrained one and whole."""
    recipe = training.recipe
    if not recipe.data.retained or recipe.model.config.weights is None or new_tensors or step:
        return
    # Layers are compiled for training's shapes and modes; a search has others.
    with torch.compiler.set_stance("force_eager") if recipe.train.compile else nullcontext():
        yield from _score_all_of("retained", training, 0, BEFORE)


def _retained_line(training: TrainingContext) -> str:
    """What training did to the retained sets, with its significance where utterances can be compared."""
    run = training.run
    if not run.predictions(f"retained{BEFORE}").is_file():
        return "retained: no score before training: the model, or a part of it, was randomly initialized"
    names = (f"retained{BEFORE}", "retained")
    before, after = (scores_from_json(run.scores()[name]) for name in names)
    first, second = (read_predictions(run.predictions(name)) for name in names)
    kind = kind_of(second, after)
    if metric := ACCURACY if kind == "labels" else text_metric(after) if kind == "text" else None:
        normalizer = after.conditions.get("normalizer", "none")
        systems = [System("before", first), System("after", second)]
        return describe_change(compare("retained", systems, metric, find(NORMALIZERS, normalizer)), "retained")
    name, last = next(iter(after.values.items()))
    return f"retained: {name} {describe_score(before.values[name])} before, {describe_score(last)} after"


def _score_all_of(split: str, training: TrainingContext, step: int, suffix: str = "") -> Iterator[Event]:
    """Decode a whole split with the final search, and keep predictions and scores with the run."""
    run = training.run
    evaluation, _ = yield from _decode_all_of(split, training)
    if training.world.is_first:
        write_predictions(run.predictions(split + suffix), evaluation.predictions)
        run.add_scores(split + suffix, {**evaluation.as_json(), "step": step})
    log_scores(training, step, evaluation, False)
    yield Evaluated(step, evaluation)


def _write_report(training: TrainingContext) -> Path | None:
    """The run's page. The run is done without it too, so whatever is wrong with it goes to the log."""
    try:
        return save_report(training.run, state="done").path
    except Exception as error:
        training.log.write("report_failed", reason=f"{type(error).__name__}: {error}")
        return None


def _tune(task: TunedTask, training: TrainingContext) -> Iterator[Event]:
    """Have the task choose its settings by the final model's dev predictions."""
    evaluation, context = yield from _decode_all_of("dev", training)
    if training.world.is_first:
        task.tune(evaluation.predictions, context, training.run.task)
    training.place.share(training.world)
    task.read_tuning(training.run.task)


def _decode_all_of(split: str, training: TrainingContext) -> Generator[Event, None, tuple[Evaluation, ScoringContext]]:
    """Decode and score a whole split with the final search."""
    recipe, run, world = training.recipe, training.run, training.world
    whole, count = open_split(recipe, split, run.data, training.site, world), recipe.train.final_utterances
    chosen = sample_corpus(whole, count, recipe.seed) if count and count < len(whole) else whole
    corpus, search = as_scored(chosen, training.loaded, recipe), training.final_search
    context = scoring_context(training.loaded.task, corpus, run.predictions_folder, training.site)
    deciders = decoding_world(training.loaded, recipe, search, world)
    with usable(training.loaded, recipe, search, run, world) as loaded:
        batches = evaluation_batches(loaded, corpus, recipe.decode.final_batch, recipe, training.site, deciders)
        stops = training.stop_requested if deciders is world else lambda: any(world.gather(training.stop_requested()))
        evaluation = yield from evaluate(loaded, corpus, batches, search, context, deciders, stops)
    return evaluation, context


@dataclass(frozen=True, slots=True)
class _Final:
    """The weights that a training comes to, where they were read, and the checkpoints they are of."""

    tensors: Mapping[str, Tensor]
    where: Path
    steps: tuple[int, ...]


def _load_final(final: _Final, training: TrainingContext) -> LoadedModel:
    """Built anew: what training added to the model (LoRA) is now in its weights. Ranks that share it have slices.

    Not so where the files for other toolkits need the whole model.
    """
    recipe, run, world = training.recipe, training.run, training.world
    needs_whole = find(FAMILIES, recipe.model.family).exporters.beside_has_weights
    deferred = None if needs_whole else deferral(recipe, world)
    with deferred or nullcontext():
        loaded = build_model(recipe, run.task, run.assets)
        load_weights(loaded.task_model.module, final.tensors, final.where)
    if deferred:
        share_model(loaded, recipe, world, deferred)
    else:
        loaded.task_model.module.to(world.device)
    return loaded


def _choose(training: TrainingContext) -> _Final:
    """The best checkpoint, or else the last; or, where the recipe says so, the mean of the newest."""
    count, checkpoints = training.recipe.train.average, training.run.checkpoints
    if count is None:
        chosen = open_pretrained(training.run.folder)
        return _Final(chosen.tensors(), chosen.weights, (chosen.step or 0,))
    folders = checkpoint.sound(checkpoints)[-count:]
    mean = average(folders, plain=lambda tensors: merge_lora(tensors, training.recipe.adapt))
    return _Final(mean, checkpoints, tuple(checkpoint.scores(folder)[0] for folder in folders))

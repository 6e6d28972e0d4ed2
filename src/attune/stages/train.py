"""Train a recipe, or resume it: the same command does both.

When all steps are taken it takes no more, and exports and scores the model anew: what is scored may have changed.
A generator of events; the caller draws them. Files are written by the first rank alone.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from attune.batches.load import CachedBatches, readers_watched
from attune.batches.micro_batch import LoadedMicroBatch
from attune.corpora import Corpus, CorpusSample, sample_corpus
from attune.errors import CheckpointError, ConfigError, Preempted
from attune.loading.begin import BegunModel, begin_model, rebuild_model
from attune.loading.data import (
    Example,
    TrainingSet,
    first_example,
    open_split,
    open_training_set,
    recordings_of,
    with_steps,
)
from attune.loading.language_models import search_of
from attune.loading.lock import contents_of_dev, extend_lock, gather_sources, note_changed_dev, require_same_data
from attune.loading.place import PATIENT_SHARE, RunPlace, open_place
from attune.loading.pretrained import LoadedModel, ModelFolders
from attune.loading.sharing import decoding_world, deferral, open_optimizer, share_model, usable
from attune.recipe import Difference, Recipe, is_observer
from attune.run import Run, Start, claimed
from attune.site import Site
from attune.sources import waiting_for_sources
from attune.stages.context import (
    Evaluated,
    Event,
    RunLog,
    Started,
    Stepped,
    TrainingContext,
    as_before,
    changed_rates,
    log_leaks,
    log_scores,
    log_step,
    memory_gib,
    open_saver,
    schedule_of,
)
from attune.stages.evaluate import (
    Decoding,
    Evaluation,
    Scored,
    as_scored,
    evaluate,
    evaluation_batches,
    fetch_scoring_files,
    kept_metric,
    scoring_context,
)
from attune.stages.feature_shards import fetch_features
from attune.stages.finish import finish, score_before
from attune.stages.rank_watch import RankWatch
from attune.stages.saving import publish, save, settle
from attune.training import checkpoint
from attune.training.checkpoint import Checkpoint, Damage
from attune.training.loop import StepRules, TrainingStep, take_steps
from attune.training.precision import compile_layers, computing_exactly, first_scale
from attune.training.progress import TrainingProgress
from attune.training.sharding import load_stored
from attune.types import ScoringContext
from attune.world import World

REMEMBERED_SECONDS = 3600.0  # dev audio that is kept in memory between scorings: 230 MB


@dataclass(frozen=True, slots=True)
class Request:
    """How training was asked for."""

    command: Sequence[str]
    reschedule: bool = False
    stop_requested: Callable[[], bool] = lambda: False
    report: Callable[[str], None] = lambda _: None  # of an object store that does not answer


def train(recipe: Recipe, request: Request, site: Site, world: World) -> Iterator[Event]:
    """Take the run to its end from wherever it is."""
    place = open_place(recipe.run, site, request.report, request.stop_requested)
    run = place.run
    with ExitStack() as held:
        if recipe.train.strict:
            held.enter_context(computing_exactly())
        changes: list[Difference] = []
        if world.is_first:
            held.enter_context(place.held())
            changes = held.enter_context(claimed(run, recipe, request.command, request.reschedule))
        place.share(world)
        try:
            with readers_watched(), waiting_for_sources(PATIENT_SHARE * site.timeout):
                yield from _train(recipe, place, request, site, world, changes)
        except Preempted as stop:
            _note_end(run, world, "preempted", str(stop))
            raise
        except GeneratorExit:
            _note_end(run, world, "failed", "The caller stopped reading the events of the training.")
            raise
        except BaseException as error:
            if isinstance(error, OSError | CheckpointError) and not run.folder.exists():
                raise CheckpointError(
                    f"{run.name} is gone: it was moved or removed during training. Put it back, or resume it "
                    "where it is now with run=…"
                ) from error
            _note_end(run, world, "failed", str(error), type(error).__name__)
            raise
        if world.is_first:
            run.set_status("done")


def _train(
    recipe: Recipe, place: RunPlace, request: Request, site: Site, world: World, changes: Sequence[Difference]
) -> Iterator[Event]:
    run, recipe = place.run, fetch_features(recipe, site)
    newest, damaged = checkpoint.newest(run.checkpoints)  # verified here, once
    resumes = newest is not None
    site = gather_sources(recipe, run, site, world, resumes)
    data = open_training_set(recipe, run, site, world, resumes)
    old, recipe = (with_steps(each, data.corpus, data.selection) for each in (as_before(recipe, changes), recipe))
    dev = _open_dev(recipe, run, site, world)
    # A bad row stops the run now, not after the last step.
    test = open_split(recipe, "test", run.data, site, world) if recipe.data.test else None
    begun = _begin(recipe, place, data, contents_of_dev(dev), site, world, resumes)
    training = _open_context(begun, dev, recipe, place, request, site, world)
    damaged += _mend_best(training, newest, damaged)
    progress = _resume(training, newest, damaged)
    yield Started(
        run=run,
        recipe=recipe,
        step=progress.position.step,
        parameters=begun.adapted,
        selection=data.selection,
        damaged=tuple(damaged),
        new_tensors=begun.init.new_tensors,
        dev=dev,
        rescheduled=changed_rates(changes, schedule_of(old), schedule_of(recipe), progress),
        observed=tuple(change for change in changes if is_observer(change.key, recipe.train)),
        notes=(*begun.init.notes, *data.cache_notes(begun.loaded), *(note_changed_dev(run, dev) if resumes else ())),
        leaks=log_leaks(training, data.corpus, dev, test) if world.is_first and not resumes else (),
        mix=data.mix,
        example=_show_first(training, data) if world.is_first and not resumes else None,
    )
    before = last = progress.position.step
    with closing(training.log), closing(training.saver) if training.saver else nullcontext():
        if world.is_first:
            training.log.write("started", step=before, steps=recipe.train.last_step)
        yield from score_before(training, begun.init.new_tensors, before)
        if before < recipe.train.last_step and not training.has_stalled:
            micros = data.batches(progress.position, recipe.train.last_step, begun.loaded, site, world)
            last = yield from _steps(training, progress, micros)
        data.close()
        yield from settle(training)
        yield from finish(training, before, last)


def _open_context(
    begun: BegunModel,
    dev: Corpus | CorpusSample | None,
    recipe: Recipe,
    place: RunPlace,
    request: Request,
    site: Site,
    world: World,
) -> TrainingContext:
    """All that training needs. A metric, a trial list or a language model that is missing stops the run here."""
    loaded, run = begun.loaded, place.run
    if recipe.train.compile:
        compile_layers(loaded.task_model.module)
    share_model(loaded, recipe, world, begun.deferred)
    optimizer = open_optimizer(recipe, loaded, begun.init.new_tensors, world)
    scored = as_scored(dev, loaded, recipe) if dev else None
    metric = kept_metric(recipe, loaded.task)
    scoring_files = fetch_scoring_files(recipe, loaded.task, site)
    if scoring_files and world.is_first:
        extend_lock(run, scoring_files, site)
    search = search_of(recipe.decode, loaded.task_model, site, world)
    return TrainingContext(
        recipe=recipe,
        run=run,
        place=place,
        site=site,
        world=world,
        loaded=loaded,
        optimizer=optimizer,
        dev=scored,
        dev_batches=_dev_batches(recipe, loaded, scored, site, decoding_world(loaded, recipe, search, world))
        if scored
        else (),
        dev_scoring=scoring_context(loaded.task, scored, run.predictions_folder, site) if scored else None,
        log=RunLog(run, recipe),
        metric=metric,
        history=[],
        search=search,
        final_search=search_of(recipe.decode.final, loaded.task_model, site, world) if recipe.decode.final else search,
        stop_requested=request.stop_requested,
        saver=open_saver(loaded, optimizer, place, world),
    )


def _show_first(training: TrainingContext, data: TrainingSet) -> Example | None:
    """The first example of the first epoch, which the log has too."""
    example = first_example(data.planned(), training.loaded)
    if example:
        training.log.write("example", **asdict(example))
    return example


def _open_dev(recipe: Recipe, run: Run, site: Site, world: World) -> Corpus | CorpusSample | None:
    """What is scored during training: the dev sets, or a sample of them that is the same each time."""
    if not recipe.data.dev:
        return None
    dev = open_split(recipe, "dev", run.data, site, world)
    count = recipe.train.eval_utterances
    return sample_corpus(dev, count, recipe.seed) if count and count < len(dev) else dev


def _begin(
    recipe: Recipe, place: RunPlace, data: TrainingSet, dev: Mapping[str, str], site: Site, world: World, resumes: bool
) -> BegunModel:
    """The model as this run began with it; a run that resumes only builds it, as its checkpoint has the weights."""
    run, recordings = place.run, recordings_of(recipe, site)
    folders = ModelFolders(run.task, run.assets)
    if resumes:
        require_same_data(run, data, recordings)
        return rebuild_model(recipe, folders, run.start().new_tensors, deferral(recipe, world))
    begun = begin_model(recipe, data, folders, site, world, place.share, deferral(recipe, world))
    if world.is_first:
        run.remember_start(Start(data.fingerprint, begun.init.new_tensors, recordings, data.parts, dev))
    return begun


def _mend_best(training: TrainingContext, newest: Path | None, known: Sequence[Damage]) -> list[Damage]:
    """Forget a best checkpoint that is damaged or gone, and find the best of those that are there.

    So it is too where best.json is lost: the checkpoints have their scores.
    """
    run, found = training.run, list[Damage]()
    best = run.best() if training.world.is_first else None
    folder = checkpoint.folder_of(run.checkpoints, best.step) if best else None
    reason = checkpoint.damage(folder) if folder and folder != newest else None
    if folder and reason:
        found = [Damage(folder, reason)]
    is_lost = training.world.is_first and (best is None or reason is not None)
    if is_lost:
        run.forget_best()
    if is_lost and training.metric:
        training.place.fetch_tensors()
        for folder in checkpoint.sound(run.checkpoints):
            step, scores = checkpoint.scores(folder)
            training.offer_best(scores, step)
    training.place.share(training.world)  # every rank reads what the best is
    return [damage for damage in found if damage not in known]


def _resume(training: TrainingContext, newest: Path | None, damaged: Sequence[Damage]) -> TrainingProgress:
    """Go back to the newest sound checkpoint; without one, to the beginning."""
    if training.world.is_first:
        for item in damaged:
            training.log.write("damaged", folder=item.folder, reason=item.reason)
            if item.folder.exists():
                checkpoint.set_aside(item.folder)  # train.keep_last counts sound ones
        if damaged:
            training.place.publish()  # a store has room for the step again before it is saved anew
    if newest is None:
        return TrainingProgress(scale=first_scale(training.recipe.train.precision))
    found = checkpoint.read(newest)
    weights, state = checkpoint.tensors(newest), checkpoint.tensors(newest, checkpoint.OPTIMIZER)
    load_stored(training.loaded.task_model.module, training.optimizer, weights, state)
    training.history.extend(found.history)
    # A kill may have come between the save and the record of the best.
    training.offer_best(found.scores, found.progress.position.step)
    if training.world.is_first:
        training.log.write("resumed", step=found.progress.position.step, ranks=training.world.size)
    return found.progress


def _steps(
    training: TrainingContext, progress: TrainingProgress, micros: Iterator[LoadedMicroBatch]
) -> Generator[Event, None, int]:
    """Take the steps that are left, or as many as there is patience for; returns the last."""
    settings, world = training.recipe.train, training.world
    rules = StepRules(
        seed=training.recipe.seed,
        schedule=schedule_of(training.recipe),
        precision=settings.precision,
        clip=settings.clip,
        strict=settings.strict,
        nonfinite_patience=settings.nonfinite_patience,
        anneal=training.annealing,
    )
    watch, clock = RankWatch(training), time.perf_counter()
    model = training.loaded.task_model.model
    for step in take_steps(model, training.optimizer, micros, rules, progress, world, training.stop_requested):
        now = time.perf_counter()
        speed = step.audio_seconds / max(now - clock, 1e-9)
        stepped = Stepped(step, speed, memory_gib(world), watch.after_step(step, now - clock))
        log_step(training, stepped)
        yield stepped
        yield from settle(training, waits=False)
        if (yield from _after_step(training, step)):
            training.place.settle()
            world.barrier()  # a rank that leaves early is taken for lost, and the first may still be saving
            raise Preempted(f"Stopped: step {step.progress.position.step} is saved. Run the same command to resume.")
        number = step.progress.position.step
        if training.has_stalled:
            if world.is_first:
                training.log.write("stalled", step=number, metric=settings.keep_best, patience=settings.patience)
            return number
        clock = time.perf_counter()
    return settings.last_step


@dataclass(frozen=True, slots=True)
class _Judged:
    """The dev sets' scores at a step, and whether the one that decides is the best so far."""

    evaluation: Evaluation
    scores: Mapping[str, float]
    is_best: bool


def _after_step(training: TrainingContext, step: TrainingStep) -> Generator[Event, None, bool]:
    """Score and save when it is time; a best checkpoint is on disk before it is called the best.

    Returns whether to stop, which all ranks know alike.
    """
    settings, number = training.recipe.train, step.progress.position.step
    is_last = number == settings.last_step
    judged = None
    if training.dev and training.dev_scoring and settings.eval_every and (number % settings.eval_every == 0 or is_last):
        yield from settle(training)  # what is the best so far is known when it is on disk
        judged = yield from _judge(training, training.dev, training.dev_scoring)
    # Scoring takes long: whoever asked meanwhile does not wait for another step.
    stops = step.stop_requested or (judged is not None and any(training.world.gather(training.stop_requested())))
    is_best = judged is not None and judged.is_best
    is_due = number % settings.save_every == 0 or is_last or is_best or training.has_stalled
    if is_due or stops:
        scores = judged.scores if judged else {}
        yield from save(training, Checkpoint({}, {}, step.progress, scores, tuple(training.history), not is_due))
    if judged:
        log_scores(training, number, judged.evaluation, is_best)
        yield Evaluated(number, judged.evaluation, is_best)
    if stops:
        yield from settle(training)
    if (is_due or stops) and training.saver is None:
        publish(training)
    return stops


def _judge(training: TrainingContext, dev: Scored, context: ScoringContext) -> Generator[Decoding, None, _Judged]:
    """Score the dev sets, and remember the score that decides which checkpoint is best."""
    recipe, search = training.recipe, training.search
    world = decoding_world(training.loaded, recipe, search, training.world)
    # Layers are compiled for training's shapes and modes; a search has others.
    with (
        torch.compiler.set_stance("force_eager") if recipe.train.compile else nullcontext(),
        usable(training.loaded, recipe, search, training.run, training.world) as loaded,
    ):
        evaluation = yield from evaluate(loaded, dev, training.dev_batches, search, context, world)
    scores = {f"dev.{name}": score.value for name, score in evaluation.scores.values.items()}
    name, metric = training.recipe.train.keep_best, training.metric
    if name is None or metric is None:
        return _Judged(evaluation, scores, False)
    if name not in scores:
        raise ConfigError(
            f"train.keep_best: the task does not compute {name} with these settings. Choose another score."
        )
    training.history.append(scores[name])
    is_best = training.run.is_best(name, metric, scores[name])
    return _Judged(evaluation, scores, training.world.gather(is_best)[0])  # the first rank's record counts


def _dev_batches(
    recipe: Recipe, loaded: LoadedModel, dev: Scored, site: Site, world: World
) -> Iterable[LoadedMicroBatch]:
    is_small = float(dev.seconds.sum()) <= REMEMBERED_SECONDS
    return CachedBatches(
        lambda: evaluation_batches(loaded, dev, recipe.decode.batch, recipe, site, world), remembers=is_small
    )


def _note_end(run: Run, world: World, state: str, message: str, error_kind: str = "") -> None:
    """Write down why the run ended before its time; where nothing can be written, the error itself is what counts."""
    if world.is_first:
        with suppress(OSError):
            run.set_status(state, message, error_kind)

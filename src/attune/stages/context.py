"""A training in progress: what its parts share, its events, its log, its learning rate and its optimizer."""

import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.optim import Optimizer

from attune.audio.decode import read_utterance
from attune.batches.micro_batch import LoadedMicroBatch
from attune.batches.mix import Share
from attune.config import flatten
from attune.corpora import Corpus, CorpusSample, Leak, Selection, find_leaks
from attune.decoding.search import Search
from attune.errors import AttuneError
from attune.loading.data import Example
from attune.loading.place import RunPlace
from attune.loading.pretrained import LoadedModel
from attune.recipe import SCHEDULE_KEYS, Difference, Recipe, to_plain
from attune.report.trackers import Sample, TrackedRun, Trackers, require_trackers
from attune.run import Run
from attune.site import Site
from attune.sources import content_of
from attune.stages.evaluate import Decoding, Evaluation, Scored
from attune.training.adapt import Adapted
from attune.training.checkpoint import Damage
from attune.training.loop import TrainingStep
from attune.training.optimizer import OptimizerLike
from attune.training.patience import has_stalled
from attune.training.progress import TrainingProgress
from attune.training.saving import ShardedSaver
from attune.training.schedule import NewBob, Schedule
from attune.training.sharding import has_slices
from attune.types import Metric, ScoringContext
from attune.world import World


@dataclass(frozen=True, slots=True)
class Started:
    """Training is about to begin or go on."""

    run: Run
    recipe: Recipe
    step: int
    parameters: Adapted
    selection: Selection | None  # None: a stream, of which nobody knows what is in it
    damaged: tuple[Damage, ...] = ()
    new_tensors: tuple[str, ...] = ()  # those that the pretrained weights did not give, or not wholly
    dev: Corpus | CorpusSample | None = None
    rescheduled: tuple[tuple[Difference, float, float], ...] = ()  # with the old and new rate at the next step
    observed: tuple[Difference, ...] = ()  # changed settings of what is looked at, saved and logged
    notes: tuple[str, ...] = ()  # what there is to say about the weights it begins with
    leaks: tuple[Leak, ...] = ()  # what dev and test share with the training set
    mix: tuple[Share, ...] = ()
    example: Example | None = None  # when a run begins, on the first rank; None also for a stream


@dataclass(frozen=True, slots=True)
class Stepped:
    """One optimizer step, with this machine's speed."""

    step: TrainingStep
    audio_seconds_per_second: float
    memory_gib: float
    slow_ranks: tuple[str, ...] = ()  # since this step, in words; on the first rank


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The dev sets were scored, or at the end the test sets."""

    step: int
    evaluation: Evaluation
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is on disk."""

    step: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Finished:
    """All steps are taken, or as many as there was patience for, and the model is exported."""

    run: Run
    recipe: Recipe
    best_step: int
    steps_taken: int  # by this command
    averaged: tuple[int, ...] = ()  # steps, where the model is the mean of several checkpoints
    stalled_at: int | None = None  # the step at which patience was at its end, if before the last
    report: Path | None = None  # the page, on the first rank
    retained: str = ""  # what became of the retained sets, in a line
    failures: tuple[str, ...] = ()  # of trackers


SAMPLES = 4  # transcripts that are shown of an evaluation

Event = Started | Stepped | Decoding | Evaluated | Saved | Finished


class RunLog:
    """A run's log.jsonl, and the trackers that the recipe names; what fails in a tracker is `failures`."""

    def __init__(self, run: Run, recipe: Recipe) -> None:
        self.run = run
        self.failures: list[str] = []
        names = require_trackers(recipe.train.track)
        settings = {key: value for key, value in flatten(to_plain(recipe)).items() if value is not None}
        self._trackers = Trackers(names, TrackedRun(run.folder, run.folder.name, settings), self._note_failure)

    def write(self, kind: str, **values: object) -> None:
        """A line for log.jsonl."""
        self.run.log(kind, **values)

    def plot(self, step: int, **values: float) -> None:
        """Figures for the trackers."""
        self._trackers.scalars(step, values)

    def show(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Sample transcripts, with audio for the trackers."""
        texts = [{"id": each.id, "reference": each.reference, "hypothesis": each.hypothesis} for each in samples]
        self.write("samples", step=step, split=split, samples=texts)
        self._trackers.samples(step, split, samples)

    def close(self) -> None:
        """The training is over, or this process is."""
        self._trackers.close()

    def _note_failure(self, name: str, reason: str) -> None:
        self.write("tracker_failed", tracker=name, reason=reason)
        self.failures.append(f"{name}: {reason}")


@dataclass(frozen=True, slots=True)
class TrainingContext:
    """All that the parts of a training share."""

    recipe: Recipe
    run: Run
    place: RunPlace  # of the run
    site: Site
    world: World
    loaded: LoadedModel
    optimizer: OptimizerLike
    dev: Scored | None
    dev_batches: Iterable[LoadedMicroBatch]
    dev_scoring: ScoringContext | None
    log: RunLog  # written by the first rank
    metric: Metric | None  # of train.keep_best
    history: list[float]  # the score that decides which checkpoint is best, at every scoring so far
    search: Search
    final_search: Search
    stop_requested: Callable[[], bool]
    saver: ShardedSaver | None = None  # where ranks share the weights

    @property
    def has_stalled(self) -> bool:
        """Whether the recipe's patience with the dev score is at its end."""
        patience = self.recipe.train.patience
        if patience is None or self.metric is None:
            return False
        return has_stalled(self.history, patience, self.metric)

    def annealing(self) -> float:
        """The part of the scheduled learning rate that the dev scores so far leave."""
        settings = self.recipe.train
        if not settings.anneals or self.metric is None:
            return 1.0
        rule = NewBob(self.metric, settings.anneal_factor, settings.anneal_threshold, settings.anneal_patience)
        return rule.at(self.history)

    def offer_best(self, scores: Mapping[str, float], step: int) -> None:
        """Record a checkpoint as the run's best if its dev score is; the first rank writes it."""
        name = self.recipe.train.keep_best
        if self.world.is_first and self.metric and name and name in scores:
            self.run.offer_best(name, self.metric, scores[name], step)


def log_leaks(
    training: TrainingContext, train: Corpus | None, dev: Corpus | CorpusSample | None, test: Corpus | None
) -> tuple[Leak, ...]:
    """What dev and test share with the training set; of a stream, nobody knows."""
    others = {name: corpus for name, corpus in (("dev", dev), ("test", test)) if corpus is not None}
    leaks = find_leaks(train, others) if train is not None else ()
    for leak in leaks:
        training.log.write("leak", **asdict(leak))
    return leaks


def log_step(training: TrainingContext, stepped: Stepped) -> None:
    """Write down a step, and all that was dropped or skipped in it."""
    if not training.world.is_first:
        return
    step, number = stepped.step, stepped.step.progress.position.step
    if step.skipped:
        training.log.write("skipped", step=number, reason=step.skipped, ids=step.skipped_ids)
    for reason in step.dropped:
        training.log.write("dropped", step=number, reason=reason)
    if number % training.recipe.train.log_every == 0 or number == training.recipe.train.last_step:
        figures = {
            "loss": step.loss,
            "lr": step.lr,
            "gradient_norm": step.gradient_norm,
            "audio_seconds_per_second": round(stepped.audio_seconds_per_second, 1),
            "memory_gib": round(stepped.memory_gib, 3),
        }
        position = step.progress.position
        streamed = {"epoch_audio_seconds": round(position.epoch_seconds, 1)} if position.epoch_seconds else {}
        training.log.write("step", step=number, epoch=position.epoch, **figures, **streamed)
        training.log.plot(number, **{f"train/{name}": value for name, value in figures.items()})


def log_scores(training: TrainingContext, step: int, evaluation: Evaluation, is_best: bool) -> None:
    """Write down what an evaluation came to."""
    if not training.world.is_first:
        return
    figures = {name: score.value for name, score in evaluation.scores.values.items()}
    training.log.write(
        "scores",
        step=step,
        split=evaluation.split,
        utterances=len(evaluation.predictions),
        **({"sample_of": evaluation.total} if evaluation.total else {}),
        audio_seconds=round(evaluation.audio_seconds, 3),
        decoding_seconds=round(evaluation.decoding_seconds, 3),
        **figures,
        best=is_best,
        problems=evaluation.problems,
    )
    training.log.plot(step, **{f"{evaluation.split}/{name}": value for name, value in figures.items()})
    if evaluation.split == "dev" and training.dev_scoring:
        training.log.show(step, "dev", _samples(evaluation, training.dev_scoring))


def _samples(evaluation: Evaluation, context: ScoringContext) -> list[Sample]:
    """The first texts or labels of an evaluation, with their recordings; other values are not for reading."""
    shown = [each for each in evaluation.predictions if isinstance(each.value, str)][:SAMPLES]
    return [Sample(each.id, str(each.reference), str(each.value), _recording(each.id, context)) for each in shown]


def _recording(name: str, context: ScoringContext) -> NDArray[np.float32] | None:
    try:
        utterance = context.utterance(name)
        return read_utterance(utterance, content=content_of(utterance))
    except (AttuneError, OSError):
        return None


def schedule_of(recipe: Recipe) -> Schedule:
    """The learning rate as the recipe has it."""
    settings = recipe.train
    return Schedule(recipe.optimizer.lr, settings.last_step, settings.warmup, settings.schedule, settings.restart_every)


def changed_rates(
    changes: Sequence[Difference], old: Schedule, new: Schedule, progress: TrainingProgress
) -> tuple[tuple[Difference, float, float], ...]:
    """What a changed schedule does to the learning rate of the next step: the change, the old rate and the new."""
    step = progress.position.step + 1
    return tuple((change, old.at(step), new.at(step)) for change in changes if change.key in SCHEDULE_KEYS)


def as_before(recipe: Recipe, changes: Sequence[Difference]) -> Recipe:
    """The recipe with the schedule that the run had before these changes."""
    old = {change.key: change.old for change in changes if change.key in SCHEDULE_KEYS}
    train = {key.removeprefix("train."): value for key, value in old.items() if key.startswith("train.")}
    lr = {"lr": old["optimizer.lr"]} if "optimizer.lr" in old else {}
    return replace(recipe, train=replace(recipe.train, **train), optimizer=replace(recipe.optimizer, **lr))  # type: ignore[arg-type]


def open_saver(loaded: LoadedModel, optimizer: OptimizerLike, place: RunPlace, world: World) -> ShardedSaver | None:
    """What saves the slices of ranks that share the weights."""
    model = loaded.task_model.module
    if not has_slices(model) or not isinstance(optimizer, Optimizer):
        return None
    return ShardedSaver(place.run.checkpoints, model, optimizer, world, place.deliver)


def memory_gib(world: World) -> float:
    """The most memory this process has had at once, on its device."""
    if world.device.type == "cuda":
        return torch.cuda.max_memory_allocated(world.device) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

"""A training that is under way: all that its parts share, and what the first rank writes down of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from attune.batches.load import LoadedMicroBatch
from attune.decoding.search import Search
from attune.recipe import Recipe
from attune.run import Run
from attune.site import Site
from attune.stages.evaluate import Evaluation, Scored
from attune.stages.events import Stepped
from attune.stages.journal import RunLog
from attune.stages.pretrained import LoadedModel
from attune.training.optimizer import OptimizerLike
from attune.training.patience import has_stalled
from attune.types import Metric, ScoringContext
from attune.world import World


@dataclass(frozen=True, slots=True)
class TrainingContext:
    """All that the parts of a training share."""

    recipe: Recipe
    run: Run
    site: Site
    world: World
    assembled: LoadedModel
    optimizer: OptimizerLike
    dev: Scored | None
    dev_batches: Iterable[LoadedMicroBatch]
    dev_scoring: ScoringContext | None
    journal: RunLog | None
    metric: Metric | None  # of train.keep_best
    history: list[float]  # the score that decides which checkpoint is best, at every scoring so far
    search: Search
    final_search: Search
    stop_requested: Callable[[], bool]

    @property
    def has_stalled(self) -> bool:
        """Whether the recipe's patience with the dev score is at its end."""
        patience = self.recipe.train.patience
        if patience is None or self.metric is None:
            return False
        return has_stalled(self.history, patience, self.metric)

    def offer_best(self, scores: Mapping[str, float], step: int) -> None:
        """Record a checkpoint as the run's best if its dev score is; the first rank writes it."""
        name = self.recipe.train.keep_best
        if self.journal and self.metric and name and name in scores:
            self.run.offer_best(name, self.metric, scores[name], step)


def log_step(training: TrainingContext, stepped: Stepped) -> None:
    """Write down a step, and all that was dropped or skipped in it."""
    if training.journal is None:
        return
    step, number = stepped.step, stepped.step.progress.position.step
    if step.skipped:
        training.journal.write("skipped", step=number, reason=step.skipped, ids=step.skipped_ids)
    for reason in step.dropped:
        training.journal.write("dropped", step=number, reason=reason)
    if number % training.recipe.train.log_every == 0 or number == training.recipe.train.steps:
        figures = {"loss": step.loss, "lr": step.lr, "gradient_norm": step.gradient_norm}
        speed = round(stepped.audio_seconds_per_second, 1)
        position = step.progress.position
        heard = {"epoch_audio_seconds": round(position.heard, 1)} if position.heard else {}
        training.journal.write(
            "step", step=number, epoch=position.epoch, **figures, audio_seconds_per_second=speed, **heard
        )
        training.journal.plot(number, **{f"train/{name}": value for name, value in figures.items()})


def log_scores(training: TrainingContext, step: int, evaluation: Evaluation, is_best: bool) -> None:
    """Write down what an evaluation came to."""
    if training.journal is None:
        return
    figures = {name: score.value for name, score in evaluation.scores.values.items()}
    training.journal.write(
        "scores",
        step=step,
        split=evaluation.split,
        utterances=len(evaluation.predictions),
        **({"sample_of": evaluation.total} if evaluation.total else {}),
        **figures,
        best=is_best,
        problems=evaluation.problems,
    )
    training.journal.plot(step, **{f"{evaluation.split}/{name}": value for name, value in figures.items()})

"""What happens in training, as values: the stage yields them, the command line draws them."""

from dataclasses import dataclass
from pathlib import Path

from attune.batches.mix import Share
from attune.corpora import Corpus, CorpusSample, Selection
from attune.recipe import Difference, Recipe
from attune.run import Run
from attune.stages.evaluate import Decoding, Evaluation
from attune.stages.example import Example
from attune.training.adapt import Adapted
from attune.training.checkpoint import Damage
from attune.training.loop import TrainingStep


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
    notes: tuple[str, ...] = ()  # what there is to say about the weights it begins with
    mix: tuple[Share, ...] = ()
    example: Example | None = None  # when a run begins, on the first rank; None also for a stream


@dataclass(frozen=True, slots=True)
class Stepped:
    """One optimizer step, with this machine's speed."""

    step: TrainingStep
    audio_seconds_per_second: float
    memory_gib: float


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


Event = Started | Stepped | Decoding | Evaluated | Saved | Finished

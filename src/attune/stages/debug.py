"""A rehearsal of a recipe: a few steps, evaluations, checkpoints and the final scores, end to end in a minute."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from attune import catalog
from attune.errors import AttuneError
from attune.plain_yaml import inline_yaml
from attune.recipe import Recipe
from attune.run import Run
from attune.run_store import is_stored

STEPS, EVERY, UTTERANCES = 4, 2, 8
SUFFIX = "-debug"


def debug_overrides(recipe: Recipe) -> list[str]:
    """The settings under which a recipe is rehearsed, in a run folder of its own."""
    place = f"runs/{recipe.run.rpartition('/')[2]}" if is_stored(recipe.run) else recipe.run
    return [f"run={inline_yaml(place + SUFFIX)}", *_settings(recipe)]


def _settings(recipe: Recipe) -> Iterator[str]:
    train = recipe.train
    yield from (f"train.steps={STEPS}", "train.epochs=null", "train.restart_every=null", "train.patience=null")
    yield from (f"train.warmup={min(train.warmup, 1)}", f"train.save_every={EVERY}", "train.log_every=1")
    if train.average:
        yield f"train.average={min(train.average, train.keep_last, STEPS // EVERY)}"
    can_sample = catalog.find(catalog.TASKS, recipe.task.name).scored_over == "utterances"
    if recipe.data.dev:
        yield f"train.eval_every={EVERY}"
        yield from (f"train.eval_utterances={UTTERANCES}",) if can_sample else ()
    if can_sample:
        yield f"train.final_utterances={UTTERANCES}"


def remove_rehearsal(folder: Path) -> None:
    """Make room for a new rehearsal where an earlier one has ended; anything else, such as a run, is left alone."""
    run = Run(folder)
    if folder.name.endswith(SUFFIX) and run.status() is not None and _is_rehearsal(run):
        shutil.rmtree(folder)


def _is_rehearsal(run: Run) -> bool:
    try:
        return run.recipe().train.steps == STEPS
    except (AttuneError, OSError):
        return False

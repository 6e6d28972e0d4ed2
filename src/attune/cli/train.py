"""Train a recipe, or resume its run."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.cli._ranks import (
    add_launch,
    add_nodes,
    add_per_rank,
    add_site,
    cluster_of,
    in_world,
    ranks_wanted,
    report_loss,
    report_wait,
    site_of,
    start_node,
    start_ranks,
)
from attune.cli._terminal import add_json, add_overrides, at_least, print_json, stored_recipe
from attune.cli.new import add_model, draft
from attune.errors import ConfigError, Preempted

if TYPE_CHECKING:
    from attune.launch.group import Outcome
    from attune.recipe import Recipe
    from attune.run import Run, Status
    from attune.site import Site
    from attune.stages.train import Request
    from attune.world import World

Report = Callable[[Mapping[str, float]], None]

HELP = "train a recipe, or data with a model; the same command resumes a stopped run"
EXAMPLE = "attune train demo optimizer.lr=1e-4 --devices 2"


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of training: the scores of each split as JSON values, and the test utterances without a prediction."""

    scores: Mapping[str, Any]
    absent: int


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe, overrides, devices and launcher."""
    parser.add_argument(
        "recipe",
        metavar="RECIPE|RUN|DATA",
        help="recipe file or the name of a shipped one; a run, to continue it; or data, with --model",
    )
    add_overrides(parser)
    add_model(parser)
    add_site(parser)
    add_launch(parser)
    add_nodes(parser)
    parser.add_argument(
        "--restarts", type=at_least(0), default=0, metavar="N", help="restart up to N times when a rank dies"
    )
    parser.add_argument(
        "--reschedule", action="store_true", help="resume with a changed schedule (steps, learning rate)"
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        help="rehearse the recipe in RUN-debug: a few batches of everything",
    )
    add_per_rank(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Train on the chosen devices."""
    from attune import recipe
    from attune.launch.ranks import is_rank

    arguments = _with_recipe(arguments)
    if arguments.debug and not is_rank():
        arguments = _as_rehearsal(arguments)
    loaded = recipe.load(arguments.recipe, arguments.overrides)  # its errors are printed before any rank starts
    if arguments.launch == "ray":
        return _train_on_ray(arguments, loaded.recipe)
    if not is_rank() and (arguments.nodes or arguments.rendezvous):
        return start_node(arguments, loaded.recipe.run)
    if is_rank() or (not arguments.restarts and ranks_wanted(arguments) == 1):
        return in_world(arguments, lambda site, world: _train_here(arguments, loaded.recipe, site, world))
    return _train_group(arguments, loaded.recipe.run)


def _with_recipe(arguments: Namespace) -> Namespace:
    """The arguments with a recipe in the place of a name, a run, or data and a model; ranks are started with these."""
    from attune.plain_yaml import inline_yaml
    from attune.sources import is_address

    given, own = Path(arguments.recipe), list[str]()
    stored = stored_recipe(arguments.recipe)
    if stored:
        recipe, own = stored, [f"run={inline_yaml(arguments.recipe.rstrip('/'))}"]
    elif arguments.model:
        recipe = _draft(arguments)
    elif (given / "recipe.yaml").is_file():
        if not (given / "status.json").is_file():
            raise ConfigError(f"{given} is a model, not a run. To train from it: attune train DATA --model {given}")
        recipe, own = given / "recipe.yaml", [f"run={inline_yaml(str(given))}"]  # it may have been moved
    elif given.suffix not in (".yaml", ".yml") and (given.exists() or is_address(arguments.recipe)):
        raise ConfigError(f"{arguments.recipe} is not a recipe. If it is data, name the model to train: --model MODEL.")
    else:
        recipe = given
    of_data = {arguments.recipe, *_corpus_options(arguments)}
    verb, *words = (word for word in _without_model(arguments.words) if word not in of_data)
    overrides = [*own, *(word for word in arguments.overrides if word not in of_data)]
    changed = {"recipe": recipe, "overrides": overrides, "words": [verb, str(recipe), *own, *words]}
    return Namespace(**{**vars(arguments), **changed})


def _as_rehearsal(arguments: Namespace) -> Namespace:
    """The arguments with the settings of a rehearsal, which ranks are started with too."""
    from attune import recipe
    from attune.stages.debug import debug_overrides, remove_rehearsal

    settings = debug_overrides(recipe.load(arguments.recipe, arguments.overrides).recipe)
    overrides = [*arguments.overrides, *settings]
    remove_rehearsal(Path(recipe.load(arguments.recipe, overrides).recipe.run))
    words = [*(word for word in arguments.words if word != "--debug"), *settings]
    return Namespace(**{**vars(arguments), "overrides": overrides, "words": words, "debug": False})


def _draft(arguments: Namespace) -> Path:
    from attune.launch.ranks import is_rank
    from attune.stages.new import NewRequest

    if is_rank():
        raise ConfigError("Make the recipe first, in one process: attune new DATA --model MODEL; then train it.")
    run = next((word.partition("=")[2] for word in arguments.overrides if word.startswith("run=")), None)
    options = _corpus_options(arguments)
    request = NewRequest(arguments.recipe, arguments.model, run=run, language=arguments.language, options=options)
    return draft(request).path


def _corpus_options(arguments: Namespace) -> list[str]:
    """With data in the place of a recipe, words such as text=COLUMN are about the data: no recipe has these keys."""
    from attune.recipe import Recipe

    known = {"base", *Recipe.__dataclass_fields__}
    names = {word: word.partition("=")[0] for word in arguments.overrides}
    return [word for word, name in names.items() if arguments.model and "." not in name and name not in known]


def _without_model(words: Sequence[str]) -> list[str]:
    """The command line without what the recipe now has."""
    kept, skip = [], False
    for word in words:
        is_option = word in ("--model", "--language")
        if not (skip or is_option or word.startswith(("--model=", "--language="))):
            kept.append(word)
        skip = is_option
    return kept


def _train_group(arguments: Namespace, place: str) -> int:
    """Train in child processes, and record their result in status.json."""
    from attune.launch.stopping import STOP_SIGNALS
    from attune.loading.place import fail_status, local_run

    site = site_of(arguments)
    training = local_run(place, site)
    before = training.status()
    outcome = start_ranks(arguments, arguments.restarts, lambda _: _is_worth_a_restart(training, before))
    if training.status() == before:
        # No rank has started the run, so its status is not ours to change.
        return _stopped_before_start() if outcome.code in (128 + number for number in STOP_SIGNALS) else outcome.code
    state = training.state()
    if outcome.code > 128 and state == "preempted":
        return Preempted.exit_code
    if outcome.code and state in ("running", "failed"):
        fail_status(place, site, outcome.reason, outcome.error_kind)
    return outcome.code


def _stopped_before_start() -> int:
    print("Stopped before training started. Run the same command to resume.", file=sys.stderr)
    return Preempted.exit_code


def _is_worth_a_restart(training: Run, before: Status | None) -> bool:
    """Whether a restart may help; a status from before the ranks started says nothing about them."""
    status = training.status()
    return status in (before, None) or not (status.state == "done" or status.error_kind == "TrainingError")


def _train_on_ray(arguments: Namespace, recipe: Recipe) -> int:
    """Train on the workers of a Ray cluster, and return the exit code."""
    from attune.launch.ray import Work, train_on_ray
    from attune.run_store import is_stored

    folder = None if is_stored(recipe.run) else Path(recipe.run).resolve()
    recipe = replace(recipe, run=str(folder or recipe.run))
    command = ["attune", *arguments.words]
    work = Work(folder, partial(_work, arguments, recipe, command, Path.cwd()), report_loss)
    ended = train_on_ray(work, cluster_of(arguments), arguments.restarts)
    if ended.outcome.code:
        print(ended.outcome.reason, file=sys.stderr)
        return _failed_on_ray(arguments, recipe, ended.outcome)
    # Ray prefixes the workers' output, so JSON is printed here.
    return _print_result(arguments, recipe, _Result(**ended.result)) if ended.result else 0


def _failed_on_ray(arguments: Namespace, recipe: Recipe, outcome: Outcome) -> int:
    """Have the run's status say what its workers could not."""
    from attune.loading.place import fail_status

    if outcome.code == 1:
        fail_status(recipe.run, site_of(arguments), outcome.reason, outcome.error_kind)
    return outcome.code


def _work(
    arguments: Namespace,
    recipe: Recipe,
    command: Sequence[str],
    folder: Path,
    world: World,
    stop_requested: Callable[[], bool],
    report: Report,
) -> dict[str, Any]:
    """One Ray worker; relative paths of a recipe start at the folder of the command, if it exists here."""
    from attune.batches.load import readers_watched
    from attune.stages.train import Request

    if folder.is_dir():
        os.chdir(folder)
    site = site_of(arguments)  # of this node: its cache is its own
    request = Request(command, arguments.reschedule, stop_requested, report_wait)
    with readers_watched():
        return asdict(_train(arguments, recipe, request, site, world, report))


def _train_here(arguments: Namespace, recipe: Recipe, site: Site, world: World) -> int:
    from attune.launch.stopping import handle_stop_signals
    from attune.stages.train import Request

    request = Request(["attune", *arguments.words], arguments.reschedule, handle_stop_signals(), report_wait)
    result = _train(arguments, recipe, request, site, world)
    return _print_result(arguments, recipe, result) if world.is_first else 0


def _print_result(arguments: Namespace, recipe: Recipe, result: _Result) -> int:
    if arguments.json:
        print_json({"run": recipe.run, "scores": result.scores})
    # The run is done; but as in `attune evaluate`, test utterances without a prediction are a failure.
    return 1 if result.absent else 0


def _train(
    arguments: Namespace, recipe: Recipe, request: Request, site: Site, world: World, report: Report = lambda _: None
) -> _Result:
    from attune.display import Display, shown
    from attune.report.ranks import ranks_table
    from attune.stages.context import Evaluated
    from attune.stages.train import train

    events, display = train(recipe, request, site, world), Display(sys.stderr if arguments.json else sys.stdout)
    if world.is_first:
        events = shown(events, display)
    result = _Result({}, 0)
    for event in events:
        if isinstance(event, Evaluated):
            split, figures = event.evaluation.split, event.evaluation.scores.values
            scores = {**result.scores, split: event.evaluation.as_json()}
            result = _Result(scores, event.evaluation.absent if split == "test" else result.absent)
            if world.is_first and arguments.per_rank:
                display.say(ranks_table(event.evaluation.rank_counts))
            report({"step": event.step} | {f"{split}.{name}": figures[name].value for name in figures})
    return result

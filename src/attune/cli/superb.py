"""Run SUPERB for an upstream: every task whose corpus is there, several learning rates each, one table."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_launch, add_site, site_of
from attune.cli._terminal import add_json, add_overrides, print_json
from attune.cli.sweep import run_points
from attune.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from attune.studies.superb import SuperbTask, TaskResult, Trial
    from attune.studies.sweep import PointResult, SweepPoint

HELP = "run the SUPERB benchmark for an upstream: a learning rate sweep chosen on dev, one table"
EXAMPLE = "attune superb --upstream hubert --weights hf://facebook/hubert-base-ls960 --data data --to superb-hubert"


def add_arguments(parser: ArgumentParser) -> None:
    """Take an upstream, its weights, the data, the tasks, devices and launcher."""
    parser.add_argument("--upstream", required=True, help="upstream, see `attune list upstreams`")
    parser.add_argument("--weights", help="weights of the upstream: folder, URL or .pt file")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the prepared manifests")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder of runs and the table")
    parser.add_argument("--tasks", default="all", help="tasks by name, e.g. KS,SID,ASR (default all)")
    parser.add_argument("--rates", default="1e-1,1e-2,1e-3,1e-4,1e-5", help="learning rates to try")
    parser.add_argument("--lm", metavar="ARPA", help="score ASR also with this n-gram model: beam 5, weight 2")
    add_overrides(parser)
    add_site(parser)
    add_launch(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Train what is not done yet, then write table.md and radar.svg; missing corpora are named."""
    from attune.files import write_text
    from attune.studies.superb import radar, table

    arguments.to = arguments.to.absolute()
    found = _trials(arguments)
    trained = _train(arguments, [point for each in found for trial in each for point in trial.points])
    results = [result for each in found for result in _scored(arguments, each, trained)]
    if not results:
        return 1
    write_text(arguments.to / "table.md", table(results, arguments.upstream))
    write_text(arguments.to / "radar.svg", radar(results, arguments.upstream))
    if arguments.json:
        print_json({each.name: {"value": each.value, "chosen": each.chosen} for each in results})
    else:
        print(table(results, arguments.upstream), end="")
        print(f"table: {arguments.to / 'table.md'}, plot: {arguments.to / 'radar.svg'}")
    return 1 if any(each.problem for each in trained.values()) else 0


def _trials(arguments: Namespace) -> list[list[Trial]]:
    """What to train for each task whose corpus is there."""
    tasks, layers = _tasks(arguments.tasks), _layers(arguments)
    found = []
    for task in tasks:
        try:
            found.append(_trials_of(task, arguments, layers))
        except ConfigError as error:
            raise ConfigError(f"{task.name}: {error}") from error
    if not any(found):
        raise ConfigError(f"No corpus of these tasks is in {arguments.data}. Prepare one: attune prepare --help")
    return [trials for trials in found if trials]


def _trials_of(task: SuperbTask, arguments: Namespace, layers: list[str]) -> list[Trial]:
    """A trial for each learning rate or layer; none where the corpus is missing, which is reported."""
    from attune.studies import superb

    recipe = superb.write_recipe(task, arguments.data, arguments.to)
    words = [*_upstream(arguments), *arguments.overrides]
    missing = superb.missing_files(task, recipe, arguments.data, words)
    if missing:
        print(f"{task.name}: no {missing[0]}. Its corpus: {task.corpus}.", file=sys.stderr)
        return []
    values = _names(arguments.rates) if task.learns else layers
    return superb.trials(task, recipe, arguments.data, words, values)


def _train(arguments: Namespace, points: list[SweepPoint]) -> dict[str, PointResult]:
    """Train all points, on as many devices as there are; what failed is reported at once."""
    found = {}
    for result in run_points(arguments, points, arguments.to):
        found[result.point.name] = result
        outcome = f"failed: {result.problem}" if result.problem else "done"
        print(f"{len(found)}/{len(points)} {result.point.name}: {outcome}", file=sys.stderr, flush=True)
    return found


def _scored(arguments: Namespace, found: list[Trial], trained: dict[str, PointResult]) -> Iterator[TaskResult]:
    """The test score of what dev chose; of ASR also with a language model."""
    from attune.studies import superb

    task = found[0].task
    metric = superb.metric_of(found[0].points[0].recipe_file)
    best = superb.chosen(found, trained, metric)
    if best is None:
        print(f"{task.name}: no run has a dev score.", file=sys.stderr)
        return
    site = site_of(arguments)
    yield superb.score_on_test(best, metric, site, task.name)
    if task.name == "ASR" and arguments.lm:
        lm = str(Path(arguments.lm).absolute())
        search = [f"decode.final={{search: beam, beam: 5, lm: {json.dumps(lm)}, lm_weight: 2}}"]
        yield superb.score_on_test(best, metric, site, "ASR+LM", search)


def _layers(arguments: Namespace) -> list[str]:
    """The numbers of the upstream's layers; an upstream that cannot be loaded ends the benchmark here."""
    from attune import load_upstream

    try:
        upstream = load_upstream(arguments.upstream, arguments.weights)
    except (ConfigError, ModelError) as error:  # which speaks of a recipe, and there is none to set it in
        text = str(error).replace("model.weights", "--weights").replace("model.upstream=", "--upstream ")
        raise type(error)(text) from error
    return [str(number) for number in range(len(upstream.widths))]


def _tasks(names: str) -> list[SuperbTask]:
    from attune.catalog import suggestion
    from attune.studies.superb import TASKS

    if names == "all":
        return list(TASKS)
    by_name = {task.name.lower(): task for task in TASKS}
    for name in _names(names):
        if name.lower() not in by_name:
            raise ConfigError(f"Unknown task {name!r}{suggestion(name, [task.name for task in TASKS])}")
    return [by_name[name.lower()] for name in _names(names)]


def _names(text: str) -> list[str]:
    """What commas separate, each once."""
    return list(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def _upstream(arguments: Namespace) -> list[str]:
    from attune.plain_yaml import inline_yaml

    words = ["model.family=ssl", f"model.upstream={arguments.upstream}", "adapt.freeze=[upstream]"]
    return [*words, f"model.weights={inline_yaml(arguments.weights)}"] if arguments.weights else words

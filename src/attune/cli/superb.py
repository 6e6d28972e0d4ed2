"""Run SUPERB for an upstream: every task whose corpus is there, several learning rates each, one table."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._terminal import add_json, add_overrides, print_json
from attune.errors import ConfigError

if TYPE_CHECKING:
    from attune.stages.superb import SuperbTask, TaskResult

HELP = "run the SUPERB benchmark for an upstream: a learning rate sweep chosen on dev, one table"
EXAMPLE = "attune superb --upstream hubert --weights hf://facebook/hubert-base-ls960 --data data --to superb-hubert"


def add_arguments(parser: ArgumentParser) -> None:
    """Take an upstream, its weights, the data and the tasks."""
    parser.add_argument("--upstream", required=True, help="upstream, see `attune list upstreams`")
    parser.add_argument("--weights", help="weights of the upstream: folder, URL or .pt file")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the prepared manifests")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder of runs and the table")
    parser.add_argument("--tasks", default="all", help="tasks by name, e.g. KS,SID,ASR (default all)")
    parser.add_argument("--rates", default="1e-1,1e-2,1e-3,1e-4,1e-5", help="learning rates to try")
    parser.add_argument("--device", help="device, e.g. cuda or cpu")
    add_overrides(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Train what is not done yet, then write table.md and radar.svg; missing corpora are named."""
    from attune.files import write_text
    from attune.stages.superb import radar, table

    results, absent = [], []
    for task in _tasks(arguments.tasks):
        found = _run_task(task, arguments)
        if isinstance(found, str):
            absent.append(found)
        elif isinstance(found, int):
            return found
        else:
            results.append(found)
    for line in absent:
        print(line, file=sys.stderr)
    if not results:
        raise ConfigError(f"No corpus of these tasks is in {arguments.data}. Prepare one: attune prepare --help")
    write_text(arguments.to / "table.md", table(results, arguments.upstream))
    write_text(arguments.to / "radar.svg", radar(results, arguments.upstream))
    if arguments.json:
        print_json({each.task.name: {"value": each.value, "chosen": each.chosen.value} for each in results})
    else:
        print(table(results, arguments.upstream), end="")
        print(f"table: {arguments.to / 'table.md'}, plot: {arguments.to / 'radar.svg'}")
    return 0


def _tasks(names: str) -> list[SuperbTask]:
    from attune.catalog import suggestion
    from attune.stages.superb import TASKS

    if names == "all":
        return list(TASKS)
    by_name = {task.name.lower(): task for task in TASKS}
    for name in names.split(","):
        if name.lower() not in by_name:
            raise ConfigError(f"Unknown task {name!r}{suggestion(name, [task.name for task in TASKS])}")
    return [by_name[name.lower()] for name in names.split(",")]


def _run_task(task: SuperbTask, arguments: Namespace) -> TaskResult | str | int:
    """The result; or a line that says what is missing; or the exit code of a command that failed."""
    from attune.cli import main
    from attune.run import Run
    from attune.stages import superb

    recipe = superb.write_recipe(task, arguments.data, arguments.to)
    missing = superb.missing_files(recipe)
    if missing:
        return f"{task.name}: no {missing[0]}. Its corpus: {task.corpus}."
    device = [f"--device={arguments.device}"] if arguments.device else []
    found = superb.trials(task, recipe.parent, arguments.rates.split(","))
    for trial in found:
        words = [*_upstream(arguments), *arguments.overrides, *trial.words]
        if code := main(["train", str(recipe), *words, *device]):
            return code
    metric = superb.metric_of(recipe)
    best = superb.chosen(found, metric)
    if "test" not in Run(best.run).scores() and (code := main(["evaluate", str(best.run), "--on", "test", *device])):
        return code
    return superb.TaskResult(task, metric, best, Run(best.run).scores()["test"])


def _upstream(arguments: Namespace) -> list[str]:
    words = ["model.family=ssl", f"model.upstream={arguments.upstream}", "adapt.freeze=[upstream]"]
    return [*words, f"model.weights={arguments.weights}"] if arguments.weights else words[:2]

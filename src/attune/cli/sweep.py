"""Train a recipe with every combination of some values, and rank the runs by their dev scores."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attune.cli._ranks import add_launch, add_site, cluster_of, ranks_wanted, site_of
from attune.cli._terminal import add_json, add_recipe, print_json

if TYPE_CHECKING:
    from attune.studies.sweep import PointResult, SweepPoint

HELP = "train a recipe with every combination of some values, ranked by dev score; run again to continue"
EXAMPLE = "attune sweep recipe.yaml optimizer.lr=1e-5,3e-5,1e-4 seed=1,2 --devices 2"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe, values, a folder, devices and launcher."""
    add_recipe(parser)
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="folder of the runs (default: RUN-sweep)")
    add_site(parser)
    add_launch(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Run every point, then print a table; exit 1 when a point failed."""
    from attune import recipe as recipes
    from attune.catalog import recipe_path
    from attune.files import write_text
    from attune.run_store import require_folder
    from attune.studies.sweep import ranked, sweep_points, sweep_table

    own = [word for word in arguments.overrides if word.startswith("run=")]
    first = recipes.load(arguments.recipe, own).recipe
    folder = (arguments.to or require_folder(f"{first.run}-sweep", "--to FOLDER")).absolute()
    points = sweep_points(recipe_path(arguments.recipe).absolute(), arguments.overrides, folder)
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for result in run_points(arguments, points, folder):
        results.append(result)
        outcome = "failed" if result.problem else "done"
        print(f"{len(results)}/{len(points)} {result.point.name}: {outcome}", file=sys.stderr, flush=True)
    name, order = ranked(results, points[0].recipe())
    write_text(folder / "sweep.json", json.dumps(_as_json(name, order), indent=1) + "\n")
    if arguments.json:
        print_json(_as_json(name, order))
    else:
        print(sweep_table(name, order) if name else "No run of the sweep has a dev score.")
        best = next((result.point.run for result in order if result.scores), None)
        if best:
            print(f"Best on dev: {best}. Score it on test once: attune evaluate {best} --on TEST_MANIFEST")
    for result in order:
        if result.problem:
            print(f"{result.point.name}: {result.problem}", file=sys.stderr)
    return 1 if any(result.problem for result in order) else 0


def run_points(arguments: Namespace, points: Sequence[SweepPoint], folder: Path) -> Iterator[PointResult]:
    """Run points on the devices or the cluster of the command line; yields each as it ends, on Ray when all have."""
    from attune.launch.stopping import handle_stop_signals
    from attune.launch.sweep import run_here, run_on_ray

    site = site_of(arguments)
    if arguments.launch == "ray":
        with redirect_stdout(sys.stderr):  # which Tune and its trials print to
            results = run_on_ray(points, site, cluster_of(arguments), folder)
        return iter(results)
    devices = min(ranks_wanted(arguments), len(points))
    if devices > 1:
        site = replace(site, workers=max(0, site.workers // devices))
    return run_here(points, site, devices, handle_stop_signals())


def _as_json(name: str, results: Sequence[PointResult]) -> list[dict[str, object]]:
    from attune.report.tables import scores_json

    return [
        {
            "point": result.point.name,
            "run": str(result.point.run),
            "metric": f"dev.{name}",
            **(scores_json(result.scores) if result.scores else {"problem": result.problem}),
        }
        for result in results
    ]

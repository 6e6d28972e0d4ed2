"""A grid of runs: every point is a run folder of its own, trained and scored on dev. Test sets are never looked at.

Run again, finished points cost nothing, others go on from their checkpoints, and new values add new points.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attune import recipe as recipes
from attune.errors import AttuneError, ConfigError, Preempted
from attune.metrics import Scores
from attune.plain_yaml import inline_yaml
from attune.recipe import Recipe
from attune.report.tables import describe_score, scores_from_json
from attune.run import Run
from attune.site import Site
from attune.stages import drain
from attune.stages.eval_target import evaluate_target, open_eval_target, record
from attune.stages.train import Request, train
from attune.world import World, choose_device

NOT_COMPARABLE = ("run", "data.dev", "data.test", "task.normalizer")  # scores would be of different things
OPENING, CLOSING, QUOTES = "[{", "]}", "'\""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One combination of values, and its run."""

    recipe_file: Path
    overrides: tuple[str, ...]  # all of them
    name: str
    run: Path

    def recipe(self) -> Recipe:
        """The recipe of this point; without test sets, which must not choose anything."""
        own = [f"run={inline_yaml(str(self.run))}", "data.test=[]"]
        return recipes.load(self.recipe_file, [*self.overrides, *own]).recipe


@dataclass(frozen=True, slots=True)
class PointResult:
    """What came of a point: its dev scores, or why it has none."""

    point: SweepPoint
    scores: Scores | None = None
    problem: str = ""


def sweep_points(recipe_file: Path, words: Sequence[str], folder: Path) -> list[SweepPoint]:
    """Every combination of the values that `key=a,b,c` words give; other words hold for all."""
    axes = [(key, values) for key, values in map(_axis, words) if len(values) > 1]
    fixed = [word for word in words if len(_axis(word)[1]) == 1]
    refused = [key for key, _ in axes if key in NOT_COMPARABLE]
    if refused:
        raise ConfigError(f"{refused[0]} cannot be swept: it changes what the dev scores measure.")
    if not axes:
        raise ConfigError("Nothing to sweep. Give a key several values: optimizer.lr=1e-5,3e-5,1e-4")
    points = []
    for values in itertools.product(*(values for _, values in axes)):
        chosen = [f"{key}={value}" for (key, _), value in zip(axes, values, strict=True)]
        name = ",".join(chosen)
        points.append(SweepPoint(recipe_file, (*fixed, *chosen), name, folder / _folder_name(name)))
    for point in points:
        _require_dev(point.recipe())  # a misspelled key or value is reported before anything is trained
    return points


def _axis(word: str) -> tuple[str, list[str]]:
    """The key of an override and its values, cut at commas that are not in brackets or quotes."""
    key, _, text = word.partition("=")
    values, depth, quote = [""], 0, ""
    for letter in text:
        if quote or letter in QUOTES:
            quote = "" if letter == quote else quote or letter
        depth += (letter in OPENING) - (letter in CLOSING) if not quote else 0
        if letter == "," and not depth and not quote:
            values.append("")
        else:
            values[-1] += letter
    return key, [value for value in values if value]


def _folder_name(name: str) -> str:
    plain = re.sub(r"[^\w.=+-]", "_", name.replace(",", "+"))  # a comma in a path would be two values of an override
    return plain if plain == name.replace(",", "+") else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _require_dev(recipe: Recipe) -> None:
    if not recipe.data.dev:
        raise ConfigError("A sweep is ranked by dev scores: set data.dev.")


def run_point(point: SweepPoint, site: Site, stop_requested: Callable[[], bool] = lambda: False) -> PointResult:
    """Train a point to its end and score its model on dev; a mistake is its result, and not the end of the sweep."""
    recipe, run = point.recipe(), Run(point.run)
    try:
        if not _is_finished(run, recipe):
            world = World.alone(str(choose_device(site.device)))
            request = Request(["attune", "sweep", point.name], stop_requested=stop_requested)
            for _ in train(recipe, request, site, world):
                pass
            target = open_eval_target(str(run.folder), [], site)
            record(target, drain(evaluate_target(target, "dev", None, site, world)), None)
    except Preempted:
        raise
    except AttuneError as error:
        return PointResult(point, problem=str(error))
    return finished_result(point)


def finished_result(point: SweepPoint) -> PointResult:
    """The dev scores of a point that was trained to its end."""
    return PointResult(point, scores_from_json(Run(point.run).scores()["dev"]))


def _is_finished(run: Run, recipe: Recipe) -> bool:
    if run.state() != "done" or "dev" not in run.scores():
        return False
    return not [change for change in recipes.differences(run.recipe(), recipe) if change.key != "run"]


def ranked(results: Sequence[PointResult], recipe: Recipe) -> tuple[str, list[PointResult]]:
    """The score that decides, and the points, the best first; those that diverged or have no score come last."""
    scored = [result for result in results if result.scores]
    if not scored:
        return "", list(results)
    kept, known = recipe.train.keep_best, scored[0].scores.values if scored[0].scores else {}
    name = kept.removeprefix("dev.") if kept else next(iter(known))
    sign = -1.0 if known[name].metric.higher_is_better else 1.0

    def order(result: PointResult) -> tuple[int, float]:
        if result.scores is None:
            return 2, 0.0
        value = result.scores.values[name].value
        return (1, 0.0) if math.isnan(value) else (0, sign * value)

    return name, sorted(results, key=order)


def sweep_table(name: str, results: Sequence[PointResult]) -> str:
    """A line for each point with its dev score and interval, the best first."""
    rows = [["", "point", f"dev {name} [95 % CI]"]]
    for number, result in enumerate(results, 1):
        problem = result.problem.partition("\n")[0]
        found = describe_score(result.scores.values[name]) if result.scores else f"failed: {problem}"
        rows.append([str(number), result.point.name, found])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *_overlaps(name, results)])


def _overlaps(name: str, results: Sequence[PointResult]) -> list[str]:
    """Say so when the interval of the best does not tell it from others."""
    first, *rest = [result.scores.values[name] for result in results if result.scores]
    alike = sum(each.low <= first.high and first.low <= each.high for each in rest)
    return [f"{alike} other points have intervals that overlap with the first."] if alike else []

"""The product's story on a laptop: real training, real decoding, nothing stored."""

from __future__ import annotations

import shlex
import shutil
import sys
from argparse import ArgumentParser, Namespace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attune.display import Display
    from attune.recipe import Recipe
    from attune.run import Run
    from attune.site import Site
    from attune.stages.evaluate import Evaluation

HELP = "fine-tune a small model on this machine: two minutes, offline"
EXAMPLE = "attune demo"
RECORDING = "attune://demo/audio/test-000.opus"  # ships with the package, so that the printed command works as it is

STORY = """\
attune demo: a small model, pretrained on synthetic speech, learns new words and voices.
It is tested as it is, fine-tuned on 500 short utterances, and tested again on unseen speakers.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Take where to put the run."""
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), help="run folder (default runs/demo)")


def run(arguments: Namespace) -> int:
    """Test, fine-tune, test again, and show the difference."""
    from attune import recipe as recipes
    from attune.display import Display, shown
    from attune.run import Run
    from attune.site import this_site
    from attune.stages.context import Evaluated
    from attune.stages.train import Request, train
    from attune.world import World

    display, site = Display(sys.stdout), this_site(device="cpu")
    run = Run(_free(arguments.run))
    recipe = recipes.load(Path(recipes.__file__).parent / "recipes" / "demo.yaml", [f"run={run.folder}"]).recipe
    display.say(STORY)
    before = _test(str(recipe.model.config.weights), recipe, site, display)
    after = before
    for event in shown(train(recipe, Request(["attune", "demo"]), site, World.alone()), display):
        if isinstance(event, Evaluated) and event.evaluation.split == "test":
            after = event.evaluation
    _show_difference(before, after, display)
    _show_run(run, display)
    return 0


def _free(folder: Path) -> Path:
    """The folder itself while its demo is not finished, or else the next one of that name."""
    from attune.run import Run

    number = 1
    candidate = folder
    while Run(candidate).state() == "done":
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _test(weights: str, recipe: Recipe, site: Site, display: Display) -> Evaluation:
    """Decode the demo's test set with the given weights under the demo's settings."""
    from dataclasses import replace

    from attune.display import drawn
    from attune.loading.pretrained import open_pretrained
    from attune.sources import locate
    from attune.stages.eval_target import EvalTarget, evaluate_target
    from attune.world import World

    pretrained = replace(open_pretrained(locate(weights, site.cache)), recipe=recipe)
    return drawn(evaluate_target(EvalTarget(pretrained, None), "test", None, site, World.alone()), display)


def _show_difference(before: Evaluation, after: Evaluation, display: Display) -> None:
    from attune.report.alignments import alignments
    from attune.report.tables import describe_score, scores_table

    display.say("\n" + scores_table({"before": before.scores, "after": after.scores}))
    name = next(iter(after.scores.values))
    first, last = (describe_score(each.scores.values[name]) for each in (before, after))
    display.say(f"\n{name} on unseen speakers: {first} before, {last} after.")
    display.say("\nWorst transcripts before, and after:\n")
    for evaluation in (before, after):
        for block in islice(alignments(evaluation.predictions), 2):
            display.say(f"{block}\n")


def _show_run(run: Run, display: Display) -> None:
    display.say(f"Run folder {run.folder}:")
    for path in sorted(run.folder.iterdir()):
        if not path.name.startswith("."):
            inside = f"  ({len(list(path.iterdir()))} inside)" if path.is_dir() else ""
            display.say(f"  {path.name}{'/' if path.is_dir() else ''}{inside}")
    display.say("\nNext:")
    for words in next_commands(run.folder):
        display.say(f"  {this_command(Path(sys.executable))} {words}")


def next_commands(folder: Path) -> list[str]:
    """What to try with a finished demo, as arguments of `attune`; each works as it is."""
    name = shlex.quote(str(folder))
    return [
        f"evaluate {name} --on dev",
        f"transcribe {name} {RECORDING}",
        f"show {shlex.quote(str(folder / 'recipe.yaml'))}",
        f"verify {name}",
    ]


def this_command(python: Path) -> str:
    """How this shell starts the attune that belongs to `python`: `make demo` activates no environment."""
    script = python.with_name("attune")
    if shutil.which("attune") == str(script):
        return "attune"
    command = script if script.exists() else python
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    return shlex.quote(str(shown)) + ("" if script.exists() else " -m attune")

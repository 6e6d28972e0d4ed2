"""Cross-validate a recipe: train and test it once for each fold, and report the mean."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from pathlib import Path

from attune.cli._ranks import add_launch, add_site
from attune.cli._terminal import add_json, print_json, recipe_file

HELP = "cross-validate a recipe over manifests, one for each fold; the same command resumes"
EXAMPLE = "attune folds superb-er data/session1.jsonl data/session2.jsonl data/session3.jsonl optimizer.lr=1e-3"


OPTIONS = ("devices", "device", "workers", "timeout", "launch", "address")


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe, manifests, overrides, devices and launcher."""
    parser.add_argument("recipe", type=recipe_file, help="recipe file (YAML), or the name of a shipped one")
    parser.add_argument("items", nargs="+", metavar="FILE | section.key=value", help="manifests, and overrides")
    parser.add_argument("--dev-part", type=float, default=0.2, metavar="PART", help="of the other folds (default 0.2)")
    add_site(parser)
    add_launch(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Train each fold that is not done, then print every score and the mean."""
    from attune import catalog, recipe
    from attune.cli import main
    from attune.report.tables import with_unit
    from attune.studies.folds import collect, write_folds

    words = [word for word in arguments.items if "=" in word]
    manifests = [Path(word) for word in arguments.items if "=" not in word]
    loaded = recipe.load(arguments.recipe, words).recipe
    folds = list(write_folds(loaded, manifests, arguments.dev_part))
    for fold in folds:
        print(f"fold {fold.name}: {fold.run}", file=sys.stderr)
        with redirect_stdout(sys.stderr if arguments.json else sys.stdout):
            code = main(["train", str(arguments.recipe), *words, *fold.overrides, *_options(arguments)])
        if code:
            return code
    found = collect(loaded, catalog.find(catalog.TASKS, loaded.task.name).metrics[0], folds)
    if arguments.json:
        print_json(found.as_json())
    else:
        for fold, value in zip(folds, found.values, strict=True):
            print(f"{fold.name}: {found.metric.name} {with_unit(value, found.metric.unit)}")
        mean = with_unit(found.mean, found.metric.unit)
        print(f"mean: {found.metric.name} {mean} (deviation {found.deviation:.2f})")
    return 0


def _options(arguments: Namespace) -> list[str]:
    """The options of each training, as they were given."""
    given = {name: getattr(arguments, name) for name in OPTIONS}
    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    return [*words, "--offline"] if arguments.offline else words

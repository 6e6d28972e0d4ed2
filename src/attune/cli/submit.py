"""Train a recipe on a Ray cluster as a job, which survives this terminal."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.cli._ranks import add_ray, devices
from attune.cli._terminal import add_recipe
from attune.errors import ConfigError

HELP = "train a recipe as a job on a Ray cluster: upload this folder, follow the log"
EXAMPLE = "attune submit recipe.yaml run=s3://speech/runs/first --address http://head:8265 --devices 8"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a recipe, overrides, and the job's requirements."""
    add_recipe(parser)
    add_ray(parser, "job server of the cluster, e.g. http://HEAD:8265")
    parser.add_argument("--devices", type=devices, default=1, metavar="N|MIN-MAX", help="Ray workers (default 1)")
    parser.add_argument("--restarts", type=int, default=0, metavar="N", help="restart up to N times when a worker dies")
    parser.add_argument("--folder", type=Path, default=Path(), help="folder to upload (default: the current one)")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="files not to upload; may be repeated"
    )
    parser.add_argument(
        "--pip",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="package to install on the cluster; may be repeated",
    )
    parser.add_argument(
        "--requirements",
        type=Path,
        metavar="FILE",
        help="install the packages of this requirements file on the cluster",
    )
    parser.add_argument(
        "--index-url",
        metavar="URL",
        help="package index to install from; ${NAME} is a variable of the cluster, for passwords",
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="environment variable to set; may be repeated"
    )


def run(arguments: Namespace) -> int:
    """Submit `attune train … --launch ray`, and return its exit code."""
    from attune import recipe
    from attune.launch.jobs import Job, read_requirements, submit

    loaded = recipe.load(arguments.recipe, arguments.overrides).recipe
    if not Path(loaded.run).is_absolute() and "://" not in loaded.run:
        raise ConfigError(
            f"run={loaded.run} is relative to the job's temporary folder. Set run=s3://BUCKET/NAME, or run=… to an "
            "absolute path that all nodes share."
        )
    if arguments.address is None:
        raise ConfigError("--address is missing. Add --address http://HEAD:8265.")
    folder = arguments.folder.resolve()
    if not arguments.recipe.resolve().is_relative_to(folder):
        raise ConfigError(f"{arguments.recipe} is not in {folder}, the folder to upload. Set --folder.")
    named = str(arguments.recipe.resolve().relative_to(folder))
    train = ["python", "-P", "-m", "attune", "train", named, *arguments.overrides, "--launch", "ray"]
    train += ["--devices", arguments.devices, "--restarts", str(arguments.restarts)]
    variables = dict(pair.partition("=")[::2] for pair in arguments.env)
    packages = [*(read_requirements(arguments.requirements) if arguments.requirements else ()), *arguments.pip]
    if arguments.index_url and not packages:
        raise ConfigError("--index-url has nothing to install. Add --requirements FILE or --pip PACKAGE.")
    if arguments.index_url:
        packages.insert(0, f"--index-url {arguments.index_url}")
    job = Job(list(map(str, train)), folder, variables, packages, arguments.exclude)
    outcome = submit(job, arguments.address, lambda text: print(text, end="", flush=True))
    if outcome.code:
        print(outcome.reason, file=sys.stderr)
    return outcome.code

"""Put a run's model where others can load it."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "put a model, its recipe, scores, log and card to hf://ORG/NAME or s3://BUCKET/PREFIX/"
EXAMPLE = "attune push runs/demo hf://my-team/demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run and where to put it."""
    parser.add_argument("run", help="a run directory or a model folder")
    parser.add_argument("to", metavar="ADDRESS", help="hf://ORG/NAME, or s3://BUCKET/PREFIX/")


def run(arguments: Namespace) -> int:
    """Push all of it at once."""
    from attune.run import Run
    from attune.site import this_site
    from attune.stages.publish import push_model

    place = push_model(arguments.run, arguments.to, this_site(device="cpu"))
    print(f"pushed to {place}; load it with: attune pull {arguments.to} --to DIR, or model.weights={arguments.to}")
    folder = Path(arguments.run)
    if Run(folder).checkpoints.is_dir() and not (folder / "scores.json").is_file():
        print(f"its card has no scores; for some: attune evaluate {arguments.run} --on dev, and push again")
    return 0

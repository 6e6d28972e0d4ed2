"""Write a run's model as a folder that others can load."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "write a run's model as a folder that anyone can load"
EXAMPLE = "attune export runs/demo --to models/demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run and a folder."""
    parser.add_argument("run", help="a run directory or a model, or the address of one")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="the folder to write")


def run(arguments: Namespace) -> int:
    """Export the best checkpoint, with all additions added in."""
    from attune.cli._downloads import watched
    from attune.site import this_site
    from attune.stages.publish import export_model

    export_model(arguments.run, arguments.to, watched(this_site(device="cpu")))
    print(f"{arguments.to} is the model; try: attune evaluate {arguments.to}")
    return 0

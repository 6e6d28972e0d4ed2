"""Write a run's model as a folder, or as a file, that others can load."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

HELP = "write a run's model as a folder that anyone can load, or as a .nemo file"
EXAMPLE = "attune export runs/demo --to models/demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a run and where to write its model."""
    parser.add_argument("run", help="a run directory or a model, or the address of one")
    parser.add_argument(
        "--to", type=Path, required=True, metavar="DIR|FILE.nemo", help="the folder to write, or the one file"
    )
    parser.add_argument(
        "--for-transformers",
        action="store_true",
        help="write what transformers loads, such as a FastConformer as a Parakeet (a Whisper's folder is that anyway)",
    )


def run(arguments: Namespace) -> int:
    """Export the best checkpoint, with all additions added in."""
    from attune.cli._downloads import with_progress
    from attune.site import this_site
    from attune.stages.publish import export_model

    export_model(arguments.run, arguments.to, with_progress(this_site(device="cpu")), arguments.for_transformers)
    is_native = arguments.to.is_dir() and not arguments.for_transformers
    hint = f"; try: attune evaluate {arguments.to}" if is_native else "."
    print(f"{arguments.to} is the model{hint}")
    return 0

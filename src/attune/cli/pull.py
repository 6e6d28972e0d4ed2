"""Copy a model, or anything that has an address, to a folder of one's own."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.cli._ranks import add_offline

HELP = "copy what an address names to a folder of your own"
EXAMPLE = "attune pull hf://my-team/demo --to models/demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Take an address and a folder."""
    parser.add_argument("source", help="hf://…, s3://…, https://… or a path")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="where to put it")
    add_offline(parser)


def run(arguments: Namespace) -> int:
    """Fetch, verify and copy."""
    from attune.cli._downloads import with_progress
    from attune.site import this_site
    from attune.stages.publish import pull

    site = with_progress(this_site(device="cpu", is_offline=arguments.offline))
    print(f"{pull(arguments.source, arguments.to, site)} is complete")
    return 0

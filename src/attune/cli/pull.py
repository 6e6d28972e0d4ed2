"""Download a model, or anything with a URL, to a folder."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from attune.cli._ranks import add_offline

HELP = "download a model, or anything with a URL, to a folder"
EXAMPLE = "attune pull hf://my-team/demo --to models/demo"


def add_arguments(parser: ArgumentParser) -> None:
    """Take a URL and a folder."""
    parser.add_argument("source", help="hf://…, s3://…, https://… or a path")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder to write")
    add_offline(parser)


def run(arguments: Namespace) -> int:
    """Download, verify and copy."""
    from attune.publishing.publish import pull
    from attune.site import this_site
    from attune.transfers import with_progress

    site = with_progress(this_site(device="cpu", is_offline=arguments.offline))
    print(f"downloaded to {pull(arguments.source, arguments.to, site)}")
    return 0

"""What verbs that compute share: on which devices, and how many ranks."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attune.site import Site
    from attune.world import World


def add_site(parser: ArgumentParser) -> None:
    """Take --devices, --device, --workers and --offline."""
    parser.add_argument("--devices", type=at_least(1), default=1, metavar="N", help="ranks to run on (default 1)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="kind of device")
    parser.add_argument("--workers", type=at_least(0), metavar="N", help="audio readers (default: cores - 1)")
    add_offline(parser)


def add_offline(parser: ArgumentParser) -> None:
    """Take --offline, as `arguments.offline`."""
    parser.add_argument("--offline", action="store_true", help="fetch nothing: use what is in the cache")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number and not too small."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def in_world(arguments: Namespace, work: Callable[[Site, World], int]) -> int:
    """Do the work in this process, or start this very command as several ranks."""
    from attune.cli._downloads import watched
    from attune.launch.ranks import is_rank, joined_world, start_ranks
    from attune.site import this_site

    if arguments.devices > 1 and not is_rank():
        return start_ranks(arguments.devices, sys.argv[1:])
    with joined_world(arguments.device) as world:
        site = this_site(arguments.workers, arguments.device, arguments.offline)
        return work(watched(site) if world.is_first else site, world)

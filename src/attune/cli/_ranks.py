"""Options for devices and ranks, and starting a command as several ranks."""

from __future__ import annotations

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from attune.cli._terminal import at_least
from attune.errors import ConfigError, RankLost
from attune.processes import report_failure
from attune.styles import styled

if TYPE_CHECKING:
    from attune.launch.group import Outcome
    from attune.launch.ray import Cluster
    from attune.site import Site
    from attune.world import World

AUTO = "auto"


def add_site(parser: ArgumentParser) -> None:
    """Take --devices, --device, --workers, --timeout and --offline."""
    parser.add_argument(
        "--devices", type=devices, default="1", metavar="N|auto", help="number of ranks; auto: one per GPU (default 1)"
    )
    add_device(parser)
    parser.add_argument(
        "--timeout", type=at_least(1), metavar="SECONDS", help="stop when a rank waits this long (default 600)"
    )
    add_offline(parser)


def add_device(parser: ArgumentParser) -> None:
    """Take --device and --workers."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="device type (default auto)")
    parser.add_argument("--workers", type=at_least(0), metavar="N", help="loader workers (default: cores - 1)")


def add_offline(parser: ArgumentParser) -> None:
    """Take --offline, as `arguments.offline`."""
    parser.add_argument("--offline", action="store_true", help="download nothing, use the cache only")


def add_per_rank(parser: ArgumentParser) -> None:
    """Take --per-rank."""
    parser.add_argument("--per-rank", action="store_true", help="print the error counts of each rank, and their sums")


def devices(text: str) -> str:
    """The type of --devices: a number, auto, or for Ray a range."""
    if text != AUTO and not re.fullmatch(r"[1-9]\d*(-[1-9]\d*)?", text):
        raise ArgumentTypeError(f"expected N, auto, or for Ray a range such as 2-8; found {text!r}")
    least, _, most = text.partition("-")
    if most and int(most) < int(least):
        raise ArgumentTypeError(f"the range {text} ends below its start; write {most}-{least}")
    return text


def endpoint(text: str) -> str:
    """The type of --rendezvous: a host and a port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ArgumentTypeError(f"expected HOST:PORT, such as node1:29400; found {text!r}")
    return text


def add_ray(parser: ArgumentParser, address: str) -> None:
    """Take --address."""
    parser.add_argument("--address", default=os.environ.get("RAY_ADDRESS"), metavar="ADDRESS", help=address)


def add_launch(parser: ArgumentParser) -> None:
    """Take --launch and --address."""
    parser.add_argument(
        "--launch", choices=("here", "ray"), default="here", help="run on this machine or on a Ray cluster"
    )
    add_ray(parser, "Ray cluster HOST:PORT (default: RAY_ADDRESS, or a local cluster)")


def add_nodes(parser: ArgumentParser) -> None:
    """Take --nodes and --rendezvous."""
    parser.add_argument(
        "--nodes", type=devices, metavar="N|MIN-MAX", help="number of machines; run this command on each"
    )
    parser.add_argument(
        "--rendezvous", type=endpoint, metavar="HOST:PORT", help="where they meet: one of the machines, and a free port"
    )


def start_node(arguments: Namespace, run: str) -> int:
    """Start this machine's ranks of a job on several machines."""
    import hashlib

    from attune.launch.nodes import Meeting, run_node

    if not (arguments.nodes and arguments.rendezvous) or arguments.nodes == AUTO:
        raise ConfigError("--nodes and --rendezvous go together: --nodes 2-4 --rendezvous HOST:29400.")
    least, _, most = arguments.nodes.partition("-")
    name = hashlib.sha256(run.encode()).hexdigest()[:12]
    meeting = Meeting(arguments.rendezvous, name, (int(least), int(most or least)), site_of(arguments).timeout)
    outcome = run_node(meeting, ranks_wanted(arguments), arguments.words, arguments.restarts, _log)
    if outcome.code == 1 and not outcome.error_kind:
        _log(outcome.reason)
    return outcome.code


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def cluster_of(arguments: Namespace) -> Cluster:
    """The Ray cluster of the command line."""
    from attune.launch.ray import LOCAL, Cluster

    site = site_of(arguments)
    if arguments.devices == AUTO:
        raise ConfigError("--launch ray needs --devices N or a range such as 2-8, not auto.")
    least, _, most = arguments.devices.partition("-")
    return Cluster(arguments.address or LOCAL, (int(least), int(most or least)), site.device, site.timeout)


def site_of(arguments: Namespace) -> Site:
    """This machine's settings, with those of the command line."""
    from attune.site import this_site

    if arguments.offline:
        os.environ["ATTUNE_OFFLINE"] = "1"  # for ranks and loader workers

    return this_site(arguments.workers, arguments.device, arguments.offline, arguments.timeout)


def in_world(arguments: Namespace, work: Callable[[Site, World], int]) -> int:
    """Do the work in this process, or start this command as several ranks."""
    from attune.batches.load import readers_watched
    from attune.launch.ranks import init_world, is_rank
    from attune.transfers import with_progress

    if not is_rank() and ranks_wanted(arguments) > 1:
        return start_ranks(arguments).code
    site = site_of(arguments)
    # Around all of the work: progress is printed between the events of a stage.
    with init_world(site, report_loss) as world, readers_watched():
        if world.is_first and world.device.type == "cpu" and arguments.device == AUTO:
            _warn_of_unused_gpu()
        return work(with_progress(site) if world.is_first else site, world)


def _warn_of_unused_gpu() -> None:
    """Hours on the CPU of a machine with a GPU should not come as a surprise."""
    from attune.launch.doctor import inspect_torch, unused_gpu

    if reason := unused_gpu(inspect_torch()):
        print(styled(f"WARNING: running on the CPU. {reason}", "warning", sys.stderr), file=sys.stderr, flush=True)


def ranks_wanted(arguments: Namespace) -> int:
    """The number of ranks for --devices on this machine, now."""
    from attune.launch.group import device_count

    if "-" in arguments.devices:
        raise ConfigError(f"--devices {arguments.devices} is a range, which needs --launch ray.")
    if arguments.devices == "1" or (arguments.devices != AUTO and arguments.device == "cpu"):
        return int(arguments.devices)
    found = 0 if arguments.device == "cpu" else device_count()
    if arguments.devices == AUTO:
        return max(1, found)
    return min(int(arguments.devices), found) if found else int(arguments.devices)


def start_ranks(
    arguments: Namespace, restarts: int = 0, may_restart: Callable[[Outcome], bool] = lambda outcome: True
) -> Outcome:
    """Start this command as several ranks; restart it up to `restarts` times."""
    from attune.launch.group import start_group

    outcome = start_group(lambda: ranks_wanted(arguments), arguments.words, restarts, may_restart, _log)
    if outcome.code == 1 and not outcome.error_kind:  # a rank that had no words of its own: it was killed
        _log(f"{outcome.reason} Run the same command to resume; if memory ran out, try `attune check --fit` first.")
    return outcome


def report_wait(text: str) -> None:
    """Report a wait that nobody asked for."""
    print(styled(text, "warning", sys.stderr), file=sys.stderr, flush=True)


def report_loss(reason: str, is_reporter: bool) -> None:
    """Report that another rank is lost; only one of the remaining ranks prints it."""
    if is_reporter:
        print(reason, file=sys.stderr, flush=True)
    report_failure(reason, "" if is_reporter else RankLost.__name__)

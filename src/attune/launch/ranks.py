"""Joining the process group: a rank finds its world in the environment, whichever launcher started it.

torchrun, srun, mpirun and attune's own launcher are supported. No rank outlives the process that started it, and none
waits for another forever.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from attune.errors import RankLost
from attune.launch.environment import interface_environment, rank_environment
from attune.launch.heartbeat import monitored
from attune.launch.waiting import within
from attune.processes import die_with_parent
from attune.site import Site
from attune.world import World, choose_device

# The heartbeat monitor names the missing rank, which torch cannot: so torch's timeout is later.
GRACE_SECONDS = 60.0
LOOK_SECONDS = 0.2


def is_rank() -> bool:
    """Whether a launcher started this process as a rank."""
    os.environ.update(rank_environment(os.environ))
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def init_world(site: Site, on_loss: Callable[[str, bool], None]) -> Iterator[World]:
    """This process's world: alone, or the ranks that a launcher started together.

    `on_loss(reason, is_reporter)` is called when another rank is lost, before this process exits.
    """
    if not is_rank():
        yield World(0, 1, choose_device(site.device))
        return
    die_with_parent()
    device = choose_device(site.device, int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    os.environ.update(interface_environment(os.environ))
    backend = "nccl" if device.type == "cuda" else "gloo"
    _meet(backend, site.timeout)
    with monitored(World(dist.get_rank(), dist.get_world_size(), device), site.timeout, on_loss) as world:
        yield world
    dist.destroy_process_group()  # not after an error: it could wait for a rank that is gone


def _meet(backend: str, timeout: float) -> None:
    """Join the process group; ranks that do not meet say so, not torch with its C++ stack."""
    place, rank = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", int(os.environ["RANK"])
    if rank:
        _wait_for_first(place, timeout)
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout + GRACE_SECONDS))
    except dist.DistError as error:
        reason = str(error).partition("\n")[0].rstrip(". ")
        raise _not_met(place, reason) from error


def _wait_for_first(place: str, timeout: float) -> None:
    """Wait until the first rank's store answers; torch would wait for twice as long, or without end."""
    deadline = time.monotonic() + timeout
    host, _, port = place.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout).close()
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise _not_met(place, f"nobody answered for {timeout:.0f} s ({error.strerror or error})") from error
        time.sleep(LOOK_SECONDS)
    left = max(LOOK_SECONDS, deadline - time.monotonic())
    wait = timedelta(seconds=left)
    try:
        within(left, lambda: TCPStore(host, int(port), is_master=False, timeout=wait, wait_for_workers=False))
    except (TimeoutError, dist.DistError) as error:
        raise _not_met(place, "what answers there is no rendezvous of torch") from error


def _not_met(place: str, reason: str) -> RankLost:
    rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    return RankLost(
        f"Rank {rank} of {size} did not meet the others at {place}: {reason}. Check that all ranks are started with "
        "the same MASTER_ADDR and a free MASTER_PORT; where some start much later, raise --timeout.",
        is_reporter=True,
    )

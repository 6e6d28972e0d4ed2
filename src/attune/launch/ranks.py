"""Joining the process group: a rank finds its world in the environment, whichever launcher started it.

torchrun, srun, mpirun and attune's own launcher are supported. No rank outlives the process that started it, and none
waits for another forever.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from attune.launch.environment import interface_environment, rank_environment
from attune.launch.heartbeat import monitored
from attune.processes import die_with_parent
from attune.site import Site
from attune.world import World, choose_device

# The heartbeat monitor names the missing rank, which torch cannot: so torch's timeout is later.
GRACE_SECONDS = 60.0


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
    dist.init_process_group(backend, timeout=timedelta(seconds=site.timeout + GRACE_SECONDS))
    with monitored(World(dist.get_rank(), dist.get_world_size(), device), site.timeout, on_loss) as world:
        yield world
    dist.destroy_process_group()  # not after an error: it could wait for a rank that is gone

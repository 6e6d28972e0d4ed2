"""Being one of several ranks: whoever started this process, its world is found in the environment.

torchrun, srun, mpirun and attune's own launcher are all welcome. No rank outlives the process that started it, and none
waits for another for ever.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from attune.launch.environment import interface_environment, rank_environment
from attune.launch.watch import watched
from attune.processes import die_with_parent
from attune.site import Site
from attune.world import World, choose_device

# The watch names who is missing; torch itself, who only knows that somebody is, comes second.
GRACE_SECONDS = 60.0


def is_rank() -> bool:
    """Whether a launcher has already given this process its place."""
    os.environ.update(rank_environment(os.environ))
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def joined_world(site: Site, tell: Callable[[str, bool], None]) -> Iterator[World]:
    """This process's world: alone, or the ranks that a launcher started together.

    `tell(reason, speaks)` is called when another rank is found to be lost, before this process ends.
    """
    if not is_rank():
        yield World(0, 1, choose_device(site.device))
        return
    die_with_parent()
    place = choose_device(site.device, int(os.environ.get("LOCAL_RANK", "0")))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    os.environ.update(interface_environment(os.environ))
    backend = "nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=site.timeout + GRACE_SECONDS))
    with watched(World(dist.get_rank(), dist.get_world_size(), place), site.timeout, tell) as world:
        yield world
    dist.destroy_process_group()  # not after an error: it could wait for a rank that is gone

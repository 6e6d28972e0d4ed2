"""Several ranks on this machine: torchrun's agent starts them, and each finds its world in the environment.

A rank started by anybody's torchrun is welcome just the same. No rank outlives the process that started it.
"""

import logging
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from attune.processes import die_with_parent
from attune.world import World, choose_device

COLLECTIVE_TIMEOUT = timedelta(minutes=10)


def is_rank() -> bool:
    """Whether a launcher has already given this process its place."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def joined_world(device: str) -> Iterator[World]:
    """This process's world: alone, or the ranks that a launcher started together. `device` is auto, cpu or cuda."""
    if not is_rank():
        yield World(0, 1, choose_device(device))
        return
    die_with_parent()
    place = choose_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if place.type == "cuda" else "gloo", timeout=COLLECTIVE_TIMEOUT)
    yield World(dist.get_rank(), dist.get_world_size(), place)
    dist.destroy_process_group()  # not after an error: it could wait for a rank that is gone


def start_ranks(count: int, arguments: Sequence[str]) -> int:
    """Run `attune ARGUMENTS` as `count` ranks and return the exit code they agree on; over 128, a signal came."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.ERROR)  # ranks speak for themselves
    config = LaunchConfig(
        run_id=uuid.uuid4().hex,
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        signals_to_handle="SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",  # the last is how SLURM announces the end
    )
    try:
        elastic_launch(config, sys.executable)("-m", "attune", *arguments)
    except ChildFailedError as error:
        return _exit_code([failure.exitcode for failure in error.failures.values()])
    except SignalException as stop:
        return 128 + int(stop.sigval)  # as a shell says it; the ranks were sent the same signal
    return 0


def _exit_code(codes: list[int]) -> int:
    """A rank's own word (2, 75) before the 1 or the signal of those that fell with it."""
    return next((code for code in (2, 75) if code in codes), 1)

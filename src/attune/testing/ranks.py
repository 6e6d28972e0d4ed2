"""Real gloo ranks for checks and tests: forked from this process, so that they start in a moment."""

import multiprocessing
import pickle
import tempfile
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from attune.world import World


def run_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(world, *arguments)` on `count` ranks at once; their results in rank order."""
    if count == 1:
        return [function(World.alone(), *arguments)]
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        results: SimpleQueue[bytes] = context.SimpleQueue()
        ranks = [
            context.Process(target=_one_rank, args=(rank, count, Path(folder), results, function, arguments))
            for rank in range(count)
        ]
        for process in ranks:
            process.start()
        answers = dict(pickle.loads(results.get()) for _ in ranks)
        for process in ranks:
            process.join(30)
    failures = [answer for answer in answers.values() if isinstance(answer, BaseException)]
    if failures:
        raise failures[0]
    return [answers[rank] for rank in range(count)]


def run_killed(function: Callable[..., Any], *arguments: Any) -> int | None:
    """The exit code of `function(world, *arguments)` in a process of its own, which may kill itself."""
    process = multiprocessing.get_context("fork").Process(target=_alone, args=(function, arguments))
    process.start()
    process.join()
    return process.exitcode


def _alone(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)  # threads of the parent's pool do not live on in a fork
    function(World.alone(), *arguments)


def _one_rank(
    rank: int,
    count: int,
    folder: Path,
    results: "SimpleQueue[bytes]",
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    answer: Any
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
        answer = function(World(rank, count, torch.device("cpu")), *arguments)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException as error:
        answer = error
    results.put(pickle.dumps((rank, answer)))  # as bytes: tensors would be sent as handles that die with the rank

"""Real gloo ranks for unit tests: forked from this process, so that they start in a moment."""

import multiprocessing
import pickle
import tempfile
from collections.abc import Callable
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
        results = context.SimpleQueue()
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


def _one_rank(rank, count, folder, results, function, arguments):
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
        answer = function(World(rank, count, torch.device("cpu")), *arguments)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException as error:
        answer = error
    results.put(pickle.dumps((rank, answer)))  # as bytes: tensors would be sent as handles that die with the rank

"""What a device was told to do, recorded as a CUDA graph: replayed, a thousand launches cost one."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")

PLENTY = 0.5  # of a device: with as much left, no memory has to be found


def record(run: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """The launches of `run`, which does nothing yet, and what it returns: the memory that a replay writes.

    `torch.cuda.graph` does the same, but first gives back all memory that torch keeps, the pinned memory of batches
    too. Whoever comes next then has to ask for it again, and waits longer than the recording took.
    """
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    if free < PLENTY * total:
        torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(_recording_stream(torch.cuda.current_device())):
        # Another thread may be pinning memory for the next batches; that is no part of the graph.
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            result = run()
        finally:
            graph.capture_end()
    return graph, result


@functools.cache
def _recording_stream(device: int) -> torch.cuda.Stream:
    """One for all graphs, as memory that was let go of on one stream is not taken again on another."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

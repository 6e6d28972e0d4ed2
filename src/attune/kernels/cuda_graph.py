"""CUDA graphs: capture the launches of a function; replayed, a thousand launches cost one."""

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class _HasParameters(Protocol):
    def parameters(self) -> Iterator[Tensor]: ...


def is_sharded(model: _HasParameters) -> bool:
    """Whether ranks put layers of a model together as they are called, which no graph can hold."""
    sharding = sys.modules.get("torch.distributed.tensor")  # who shares has loaded it, which takes a second
    return sharding is not None and any(isinstance(parameter, sharding.DTensor) for parameter in model.parameters())


ENOUGH_FREE = 0.5  # of a device's memory: with this much free, the cache need not be emptied


def capture_graph(run: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Capture `run` as a graph, without running it; returns the graph and the tensors that a replay writes.

    `torch.cuda.graph` does the same, but first frees all memory that torch caches, the pinned memory of batches too.
    Allocating that again takes longer than the capture.
    """
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    if free < ENOUGH_FREE * total:
        torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(_capture_stream(torch.cuda.current_device())):
        # Another thread may be pinning memory for the next batches; it must not invalidate the capture.
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            result = run()
        finally:
            graph.capture_end()
    return graph, result


@functools.cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """One stream for all graphs: the allocator does not reuse memory across streams."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

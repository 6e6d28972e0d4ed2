"""Gradient checkpointing: run a layer with or without remembering what it computes on the way."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.utils.checkpoint import checkpoint

Context = Callable[[], AbstractContextManager[object]]


def run_layer(layer: Callable[..., Any], *inputs: Any, saves_memory: bool, context: Context = nullcontext) -> Any:
    """Run a layer; to save memory, a second time in the backward pass instead of remembering it.

    `context` is what the caller is in: backward comes after it has been left, and must choose the same kernels.
    """
    if not saves_memory:
        return layer(*inputs)
    return checkpoint(layer, *inputs, use_reentrant=False, context_fn=lambda: (nullcontext(), context()))

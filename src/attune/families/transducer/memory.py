"""Run a layer with or without remembering what it computes on the way."""

from collections.abc import Callable
from typing import Any

from torch.utils.checkpoint import checkpoint


def run(layer: Callable[..., Any], *inputs: Any, saves_memory: bool) -> Any:
    """Run a layer; to save memory, a second time in the backward pass instead of remembering it."""
    return checkpoint(layer, *inputs, use_reentrant=False) if saves_memory else layer(*inputs)

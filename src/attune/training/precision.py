"""How a model computes: in fp32, bf16 or fp16 with the loss scale that needs, in the same bits every time, compiled."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from attune.world import HALF_PRECISION

GROW_AFTER = 2000


@dataclass(frozen=True, slots=True)
class LossScale:
    """The factor that keeps fp16 gradients from vanishing; a value, stored in the checkpoint."""

    value: float = 1.0
    good_steps: int = 0

    def after(self, overflowed: bool) -> "LossScale":
        """The scale for the next step: halved by an overflow, doubled by a long stretch without one."""
        if overflowed:
            return LossScale(max(self.value / 2, 1.0))
        if self.good_steps + 1 >= GROW_AFTER:
            return LossScale(self.value * 2)
        return LossScale(self.value, self.good_steps + 1)


def first_scale(precision: str) -> LossScale:
    """The scale a run starts with. Losses are sums over a micro-batch, so fp16 starts lower than for means."""
    return LossScale(1024.0 if precision == "fp16" else 1.0)


@contextmanager
def computing_exactly() -> Iterator[None]:
    """The context in which this process computes the same bits every time, on any number of ranks."""
    threads, was_exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    was_filled = memory.fill_uninitialized_memory
    torch.set_num_threads(1)  # sums inside an operation depend on the number of threads
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # nobody reads that
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(was_exact)
        memory.fill_uninitialized_memory = was_filled


def compile_layers(model: nn.Module) -> None:
    """Let torch compile the layers that repeat; one compilation serves all of a stack. LSTMs are one kernel already."""
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                if not isinstance(layer, nn.RNNBase):
                    layer.compile()


def narrowed(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context in which the model computes its loss."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=HALF_PRECISION[precision])

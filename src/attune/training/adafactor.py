"""Adafactor (arXiv 1804.04235) whose learning rate is the schedule's, for tensors of any size.

The paper multiplies the rate by the RMS of each tensor, and torch's Adafactor always does where that is above a
threshold. Here it never happens: one step changes a tensor by at most the rate, in RMS, as with the other optimizers.
The memory is that of the paper, means of squared gradients by row and column, without a first moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

DECAY_POWER = -0.8  # the memory of step t weighs the new gradient by t ** this
MOST_RMS = 1.0  # of an update before the rate; more is scaled down


class Adafactor(Optimizer):
    """Adafactor without relative steps; the names of its state are those of torch's."""

    def __init__(self, params: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Follow the gradients once; nothing waits for the device."""
        loss = closure() if closure else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter, parameter.grad, group["lr"], group["weight_decay"])
        return loss

    def _step(self, parameter: Tensor, gradient: Tensor, lr: float, weight_decay: float) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
        state["step"] += 1
        tiny = torch.finfo(parameter.dtype).eps
        estimate = _second_moment(state, gradient, float(state["step"]) ** DECAY_POWER, tiny)
        update = estimate.clamp_(min=tiny * tiny).rsqrt_().mul_(gradient)
        update.div_((_rms(update) / MOST_RMS).clamp_(min=1.0))
        if weight_decay:
            parameter.mul_(1 - lr * weight_decay)
        parameter.add_(update, alpha=-lr)


def _second_moment(state: dict[str, Tensor], gradient: Tensor, share: float, tiny: float) -> Tensor:
    """The estimated mean of the squared gradients, as a new tensor, once this gradient has its share in it."""
    if gradient.ndim < 2:
        if "variance" not in state:
            state["variance"] = torch.zeros_like(gradient)
        return state["variance"].lerp_(gradient.square(), share).clone()
    rows, columns = (
        torch.linalg.vector_norm(gradient, dim=dim, keepdim=True).square_() / gradient.shape[dim] for dim in (-1, -2)
    )
    for name, mean in (("row_var", rows), ("col_var", columns)):
        if name not in state:
            state[name] = torch.zeros_like(mean)
        state[name].lerp_(mean, share)
    whole = state["row_var"].mean(dim=-2, keepdim=True).clamp_(min=tiny)
    return (state["row_var"] @ state["col_var"]).div_(whole)


def _rms(tensor: Tensor) -> Tensor:
    # Row by row: a CPU adds squares one by one, and of 40 million at once the norm is 2 % off.
    norm: Tensor = torch.linalg.vector_norm(torch.linalg.vector_norm(tensor, dim=-1))
    return norm / float(tensor.numel() ** 0.5)

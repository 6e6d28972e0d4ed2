"""AdamW that remembers in 8 bits: two bytes per weight instead of eight, on any device.

After "8-bit Optimizers via Block-wise Quantization" (arXiv 2110.02861): each block of 256 weights keeps one float scale
per moment, and a byte per weight and moment. Two things are our own. A byte counts square roots of the scale, so that
small values are told apart finely and codes cost no table. And the second moment is kept as its root and never rounds
to zero: a weight whose memory of squares vanished would be divided by almost nothing ("Memory Efficient
Optimizers with 4-bit States", arXiv 2309.01507).

The state is plain tensors, and every operation on it is elementwise or within a block: saved and loaded it goes on in
the same bits.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

BLOCK = 256
SMALLEST = 4096  # tensors of fewer elements are remembered in float32: they are cheap, and often norms and biases
TINY = torch.finfo(torch.float32).tiny


class Adam8(Optimizer):
    """AdamW with its two moments in bytes; the same settings as torch's."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Follow the gradients once."""
        loss = closure() if closure else None
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            self._step_small([parameter for parameter in trained if parameter.numel() < SMALLEST], group)
            for parameter in trained:
                if parameter.numel() >= SMALLEST and parameter.grad is not None:
                    self._step_large(parameter, _blocks(parameter.grad), group)
        return loss

    def _step_small(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Exactly torch's AdamW."""
        for parameter in parameters:
            if not self.state[parameter]:
                moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
                self.state[parameter] = {"step": torch.zeros(()), **moments}
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def _step_large(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if not self.state[parameter]:
            self.state[parameter] = _empty_memory(parameter)
        state = self.state[parameter]
        state["step"] += 1
        count, (beta1, beta2) = float(state["step"]), group["betas"]
        mean = decode(state["mean"], state["mean_scale"]).lerp_(gradient, 1 - beta1)
        root = decode(state["root"], state["root_scale"])
        root.square_().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2).sqrt_()
        encode(mean, state["mean"], state["mean_scale"])
        encode(root, state["root"], state["root_scale"])
        root.div_(math.sqrt(1 - beta2**count)).add_(group["eps"])
        change = mean.div_(root).flatten()[: parameter.numel()].view_as(parameter)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(change, alpha=group["lr"] / (1 - beta1**count))


def _empty_memory(parameter: Tensor) -> dict[str, Tensor]:
    codes = torch.zeros(-(-parameter.numel() // BLOCK), BLOCK, dtype=torch.int8, device=parameter.device)
    scale = torch.zeros(len(codes), 1, device=parameter.device)
    return {
        "step": torch.zeros(()),
        "mean": codes,
        "mean_scale": scale,
        "root": codes.to(torch.uint8),
        "root_scale": scale.clone(),
    }


def decode(codes: Tensor, scale: Tensor) -> Tensor:
    """The values that codes stand for: signed squares of equal steps, the largest being the scale."""
    steps = codes.float().div_(torch.iinfo(codes.dtype).max)
    return steps.mul_(steps.abs()).mul_(scale)


def encode(values: Tensor, codes: Tensor, scale: Tensor) -> None:
    """Write the nearest codes of blocks of values; unsigned codes are never zero."""
    torch.amax(values.abs(), 1, keepdim=True, out=scale)
    parts = values / scale.clamp(min=TINY)
    steps = parts.abs().sqrt_().copysign_(parts).mul_(torch.iinfo(codes.dtype).max).round_()
    codes.copy_(steps if codes.dtype.is_signed else steps.clamp_(min=1))


def _blocks(tensor: Tensor) -> Tensor:
    """The elements in rows of BLOCK, the last filled up with zeros."""
    return F.pad(tensor.float().flatten(), (0, -tensor.numel() % BLOCK)).view(-1, BLOCK)

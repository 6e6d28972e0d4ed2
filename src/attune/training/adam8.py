"""AdamW that remembers in 8 bits: two bytes per weight instead of eight, on any device.

After "8-bit Optimizers via Block-wise Quantization" (arXiv 2110.02861): each block of 256 weights keeps one float scale
per moment, and a byte per weight and moment. Two things are our own. A byte counts square roots of the scale, so that
small values are resolved finely and codes cost no table. And the second moment is kept as its root and never rounds
to zero: a weight whose memory of squares vanished would be divided by almost nothing ("Memory Efficient
Optimizers with 4-bit States", arXiv 2309.01507).

The state is plain tensors, and every operation on it is elementwise or within a block: saved and loaded it goes on in
the same bits. A rank that keeps a slice of a tensor (FSDP2) counts blocks from the beginning of the whole: where a
block lies on two ranks they agree on its scale, and the codes are those that one rank would have (on CUDA, where whole
tensors are Triton's, up to rounding).
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from attune.kernels import has_triton

BLOCK = 256
SMALLEST = 4096  # tensors of fewer elements are remembered in float32: they are cheap, and often norms and biases
CODES = ("mean", "root")  # the names of what is remembered in bytes
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
                    self._step_large(parameter, parameter.grad, group)
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
        cut = Cut(parameter)
        if not self.state[parameter]:
            self.state[parameter] = _empty_memory(parameter, cut)
        state = self.state[parameter]
        state["step"] += 1
        count, (beta1, beta2) = float(state["step"]), group["betas"]
        correction, eps = math.sqrt(1 - beta2**count), group["eps"]
        kept, rate = 1 - group["lr"] * group["weight_decay"], group["lr"] / (1 - beta1**count)
        if _fits_triton(parameter, gradient):
            from attune.kernels import _triton_adam8

            _triton_adam8.step(parameter, gradient, state, (beta1, beta2), correction, eps, kept, rate)
            return
        gradient, scales = cut.blocks(gradient), (cut.scales(state["mean_scale"]), cut.scales(state["root_scale"]))
        mean = decode(cut.blocks(state["mean"]), scales[0]).lerp_(gradient, 1 - beta1)
        root = decode(cut.blocks(state["root"]), scales[1])
        root.square_().mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2).sqrt_()
        for name, values in (("mean", mean), ("root", root)):
            cut.agree(values, state[f"{name}_scale"])
            cut.put(state[name], encoded(values, cut.scales(state[f"{name}_scale"]), state[name].dtype))
        root.div_(correction).add_(eps)
        own = cut.own(parameter)
        own.mul_(kept)
        own.sub_(cut.inside(mean.div_(root)).view_as(own), alpha=rate)


class Cut:
    """A tensor in blocks, or the part of it that this rank keeps, in the blocks of the whole."""

    def __init__(self, parameter: Tensor) -> None:
        self.count = -(-parameter.numel() // BLOCK)  # blocks of the whole
        self._is_slice = isinstance(parameter, DTensor)
        own = self.own(parameter)
        self._size, begin = own.numel(), 0
        if isinstance(parameter, DTensor):
            # FSDP2 cuts rows as torch.chunk does.
            mesh, rows = parameter.device_mesh, parameter.shape[0]
            begin = min(mesh.get_local_rank() * -(-rows // mesh.size()), rows) * (parameter.numel() // rows)
            self._group = mesh.get_group()
        self._first, self._lead = divmod(begin, BLOCK)
        self._blocks = -(-(self._lead + self._size) // BLOCK) if self._size else 0

    @staticmethod
    def own(tensor: Tensor) -> Tensor:
        """What this rank has of it."""
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def blocks(self, tensor: Tensor) -> Tensor:
        """The elements in rows of BLOCK, filled up with zeros; codes stay codes."""
        own = self.own(tensor).flatten()[: self._size if self._is_slice else None]
        if own.is_floating_point():
            own = own.float()
        fill = (self._lead, self._blocks * BLOCK - self._lead - own.numel())
        return (F.pad(own, fill) if any(fill) else own).view(-1, BLOCK)

    def inside(self, blocks: Tensor) -> Tensor:
        """The elements again, without what filled the rows up."""
        return blocks.flatten()[self._lead : self._lead + self._size]

    def put(self, codes: Tensor, blocks: Tensor) -> None:
        """Write codes back: a slice keeps its elements alone, a whole tensor its rows."""
        own = self.own(codes)
        own.copy_(self.inside(blocks).view_as(own) if self._is_slice else blocks)

    def scales(self, scale: Tensor) -> Tensor:
        """The scales of the blocks that this rank has a part of."""
        return scale[self._first : self._first + self._blocks]

    def agree(self, values: Tensor, scale: Tensor) -> None:
        """Every block's largest value, on whichever ranks it lies."""
        largest = values.abs().amax(1, keepdim=True) if len(values) else scale[:0]
        scale.zero_()
        self.scales(scale).copy_(largest)
        if self._is_slice:
            dist.all_reduce(scale, dist.ReduceOp.MAX, group=self._group)


def _fits_triton(parameter: Tensor, gradient: Tensor) -> bool:
    """Whether one kernel can do the whole step."""
    is_plain = not isinstance(parameter, DTensor) and parameter.dtype == gradient.dtype == torch.float32
    return is_plain and has_triton(parameter) and parameter.is_contiguous() and gradient.is_contiguous()


def whole_codes(name: str, codes: Tensor) -> Tensor:
    """Codes as one rank that has all of a parameter keeps them: in rows of BLOCK, as they may be already."""
    # What fills up the last row was encoded too: a mean of nothing is 0, and a root is never less than 1.
    return F.pad(codes.flatten(), (0, -codes.numel() % BLOCK), value=int(name == "root")).view(-1, BLOCK)


def _empty_memory(parameter: Tensor, cut: Cut) -> dict[str, Tensor]:
    scale = torch.zeros(cut.count, 1, device=parameter.device)
    codes = torch.zeros_like(parameter, dtype=torch.int8)
    if not isinstance(parameter, DTensor):
        codes = torch.zeros(cut.count, BLOCK, dtype=torch.int8, device=parameter.device)
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
    """Write the nearest codes of blocks of values, and their scales."""
    torch.amax(values.abs(), 1, keepdim=True, out=scale)
    codes.copy_(encoded(values, scale, codes.dtype))


def encoded(values: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest codes of blocks of values under these scales; unsigned codes are never zero."""
    parts = values / scale.clamp(min=TINY)
    steps = parts.abs().sqrt_().copysign_(parts).mul_(torch.iinfo(dtype).max).round_()
    return (steps if dtype.is_signed else steps.clamp_(min=1)).to(dtype)

"""The transducer loss, exact and memory-efficient: one differentiable function of the joint network's inputs.

The logits of all cells, (B, T, U + 1, O), are never in memory at once: they are computed tile by tile within each
utterance's own lengths, reduced to a few numbers per cell, and recomputed for the gradients. Triton does it on CUDA,
plain torch anywhere else; `_reference.py` is the definition.
"""

# B utterances, T frames, U labels, J joint width, O outputs (tokens, blank, durations)
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attune.kernels import _tiles, has_triton
from attune.kernels._lattice import Extent, Lattice
from attune.kernels._tiles import JointWeights

__all__ = ["Lattice", "transducer_loss"]


def transducer_loss(
    encoded: Tensor,
    predicted: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    lattice: Lattice,
    cells: int | None = None,
) -> Tensor:
    """The negative log-likelihood of each target (B,), of activation(encoded + predicted) @ weight.T + bias.

    `encoded` is (B, T, J), `predicted` (B, U + 1, J) beginning with the prediction before any label, `weight` (O, J).
    Under autocast the products are in its dtype; sums are in float32, or float64 for float64. The outputs of about
    `cells` cells are in memory at once; None: the fastest number.
    """
    extent = Extent(tuple(lengths.tolist()), tuple(target_lengths.tolist()))
    _require_lengths_fit(extent, encoded, predicted, targets)
    losses: Tensor = _TransducerLoss.apply(  # type: ignore[no-untyped-call]
        encoded, predicted, weight, bias, targets.to(encoded.device), extent, lattice, cells
    )
    return losses


def _require_lengths_fit(extent: Extent, encoded: Tensor, predicted: Tensor, targets: Tensor) -> None:
    """A kernel would read out of bounds."""
    frames, labels = max(extent.frames, default=0), max(extent.labels, default=0)
    if frames > encoded.shape[1] or labels > targets.shape[1] or predicted.shape[1] != targets.shape[1] + 1:
        raise ValueError(
            f"lengths up to {frames} and target_lengths up to {labels} do not fit encoded {tuple(encoded.shape)}, "
            f"predicted {tuple(predicted.shape)} and targets {tuple(targets.shape)}"
        )


class _TransducerLoss(torch.autograd.Function):
    """Saves, besides the inputs, only a few numbers for each cell."""

    @staticmethod
    def forward(
        ctx: Any,
        encoded: Tensor,
        predicted: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        extent: Extent,
        lattice: Lattice,
        cells: int | None,
    ) -> Tensor:
        inputs = (encoded, predicted, weight, bias)
        ctx.extent, ctx.lattice, ctx.cells, ctx.dtype = extent, lattice, cells, _compute_dtype(inputs)
        with _without_autocast(encoded):
            total, saved = _backend(encoded, ctx.dtype).forward(_joint(ctx, inputs, targets))
        ctx.save_for_backward(*inputs, targets, *saved)
        losses: Tensor = -total.to(torch.promote_types(ctx.dtype, torch.float32))
        return losses

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        inputs, (targets, *saved) = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        with _without_autocast(outer[0]):
            found = _backend(inputs[0], ctx.dtype).backward(_joint(ctx, inputs, targets), tuple(saved), outer[0])
        parts = (found.encoded, found.predicted, found.weight, found.bias)
        return *(part.to(given.dtype) for part, given in zip(parts, inputs, strict=True)), None, None, None, None


@contextmanager
def _without_autocast(tensor: Tensor) -> Iterator[None]:
    """On the tensor's device, with dtypes as given."""
    here = torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
    with torch.autocast(tensor.device.type, enabled=False), here:
        yield


def _joint(ctx: Any, inputs: tuple[Tensor, ...], targets: Tensor) -> JointWeights:
    encoded, predicted, weight, bias = (part.detach().to(ctx.dtype).contiguous() for part in inputs)
    return JointWeights(encoded, predicted, weight, bias, targets.contiguous(), ctx.extent, ctx.lattice, ctx.cells)


def _compute_dtype(inputs: tuple[Tensor, ...]) -> torch.dtype:
    """The dtype of the products: autocast's, else the widest of the inputs; half precision only with Triton."""
    device = inputs[0].device.type
    dtype = reduce(torch.promote_types, (part.dtype for part in inputs))
    if dtype != torch.float64 and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    return dtype if has_triton(inputs[0]) else torch.promote_types(dtype, torch.float32)


def _backend(encoded: Tensor, dtype: torch.dtype) -> ModuleType:
    """The implementation: Triton on CUDA except in float64, plain torch otherwise."""
    if not has_triton(encoded) or dtype == torch.float64:
        return _tiles
    from attune.kernels import _fused

    return _fused

"""The transducer loss, exact and lean: one differentiable function from the joint network's inputs to the losses.

The outputs of all cells, (B, T, U + 1, O), are never there at once: they are made tile by tile within each utterance's
own lengths, reduced to a few numbers per cell, and made again for the gradients. Triton does it on CUDA, plain
torch anywhere else; `_reference.py` is the definition.
"""

# B utterances, T frames, U labels, J joint width, O outputs (tokens, blank, durations)
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from attune.kernels import _lattice, _tiles
from attune.kernels._lattice import Cells, Extent, Lattice

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
) -> Tensor:
    """The negative log-likelihood of each target (B,), of activation(encoded + predicted) @ weight.T + bias.

    `encoded` is (B, T, J), `predicted` (B, U + 1, J) beginning with what is said before any label, `weight` (O, J).
    Under autocast the products are in its type; sums are in float32, or float64 for float64.
    """
    extent = Extent(tuple(lengths.tolist()), tuple(target_lengths.tolist()))
    losses: Tensor = _TransducerLoss.apply(  # type: ignore[no-untyped-call]
        encoded, predicted, weight, bias, targets.to(encoded.device), extent, lattice
    )
    return losses


class _TransducerLoss(torch.autograd.Function):
    """Saves, besides the inputs, only each cell's shares of blank, label and durations."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        encoded: Tensor,
        predicted: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        extent: Extent,
        lattice: Lattice,
    ) -> Tensor:
        inputs = (encoded, predicted, weight, bias)
        dtype = _computing_type(inputs)
        with torch.autocast(encoded.device.type, enabled=False):
            joint = _tiles.Joint(*(part.detach().to(dtype) for part in inputs), targets, extent, lattice)
            total, shares = _lattice.posteriors(_tiles.log_probs(joint), extent, lattice)
        ctx.save_for_backward(*inputs, targets, shares.blank, shares.label, shares.durations)
        ctx.extent, ctx.lattice, ctx.dtype = extent, lattice, dtype
        return -total.to(dtype)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        *inputs, targets, blank, label, durations = ctx.saved_tensors
        with torch.autocast(outer[0].device.type, enabled=False):
            joint = _tiles.Joint(*(part.to(ctx.dtype) for part in inputs), targets, ctx.extent, ctx.lattice)
            found = _tiles.gradients(joint, Cells(blank, label, durations), outer[0])
        parts = (found.encoded, found.predicted, found.weight, found.bias)
        return *(part.to(given.dtype) for part, given in zip(parts, inputs, strict=True)), None, None, None


def _computing_type(inputs: tuple[Tensor, ...]) -> torch.dtype:
    return torch.float64 if any(part.dtype == torch.float64 for part in inputs) else torch.float32

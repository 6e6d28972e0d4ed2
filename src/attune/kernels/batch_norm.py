"""Batch normalization over own frames in training, with the sums that running statistics are made of."""

# B batch, C channels, F frames
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attune.kernels import _norm, has_triton


def normalize(
    frames: Tensor,
    beyond: Tensor,
    count: Tensor,
    weight: Tensor,
    bias: Tensor,
    tally: Tensor | None,
    center: Tensor,
    least_variance: float,
) -> Tensor:
    """Frames (B, C, F) normalized by the mean and variance of the `count` own ones, which are not `beyond` (B, 1, F).

    Backward gives the tally (3, C) for its gradient, by channel, how many frames these are, and their sums of
    deviations from the center and of the squares of these.
    """
    normed: Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]
        frames, beyond, count, weight, bias, tally, center, least_variance
    )
    return normed


class _Normalize(torch.autograd.Function):
    """Keeps the frames as they came and nothing else of their size.

    Backward gives the tally its sums once, even where the forward ran a second time to save memory.
    """

    @staticmethod
    def forward(ctx: Any, frames: Tensor, beyond: Tensor, count: Tensor, *rest: Any) -> Tensor:
        weight, bias, tally, center, least_variance = rest
        frames = frames.contiguous()
        by = _passes(frames, weight)
        normed: Tensor
        normed, found, sums = by.forward(frames, beyond, count, weight, bias, center, least_variance)
        ctx.save_for_backward(frames, beyond, count, weight, sums, *found)
        ctx.has_tally = tally is not None
        return normed

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        frames, beyond, count, weight, sums, *found = ctx.saved_tensors
        by = _passes(frames, weight)
        for_frames, for_weight, for_bias = by.backward(outer[0].contiguous(), frames, beyond, count, weight, *found)
        return for_frames, None, None, for_weight, for_bias, sums if ctx.has_tally else None, None, None


def _passes(frames: Tensor, weight: Tensor) -> ModuleType:
    """Who computes: Triton where it is, in float32; plain torch otherwise."""
    if not has_triton(frames) or weight.dtype != torch.float32:
        return _norm
    from attune.kernels import _triton_norm

    return _triton_norm

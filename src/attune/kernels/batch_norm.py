"""Masked batch normalization in training, with the sums from which running statistics are updated."""

# B batch, C channels, F frames
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attune.kernels import _norm, has_triton


def masked_batch_norm(
    frames: Tensor,
    padding: Tensor,
    count: Tensor,
    weight: Tensor,
    bias: Tensor,
    stats: Tensor | None,
    center: Tensor,
    eps: float,
) -> Tensor:
    """Frames (B, C, F) normalized by the mean and variance of the `count` frames outside `padding` (B, 1, F).

    In backward the gradient of `stats` (3, C) is, for each channel, the number of frames, and the sums of their
    deviations from `center` and of the squares of these.
    """
    return _apply(frames, padding, count, weight, bias, stats, center, eps)


class _MaskedBatchNorm(torch.autograd.Function):
    """Saves the input frames and nothing else of their size.

    Backward adds the sums to `stats` once, even where activation checkpointing ran the forward twice.
    """

    @staticmethod
    def forward(ctx: Any, frames: Tensor, padding: Tensor, count: Tensor, *rest: Any) -> Tensor:
        weight, bias, stats, center, eps = rest
        frames = frames.contiguous()
        backend = _backend(frames, weight)
        normed: Tensor
        normed, found, sums = backend.forward(frames, padding, count, weight, bias, center, eps)
        ctx.save_for_backward(frames, padding, count, weight, sums, *found)
        ctx.has_stats = stats is not None
        return normed

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        frames, padding, count, weight, sums, *found = ctx.saved_tensors
        backend = _backend(frames, weight)
        gradient = outer[0].contiguous()
        frames_grad, weight_grad, bias_grad = backend.backward(gradient, frames, padding, count, weight, *found)
        return frames_grad, None, None, weight_grad, bias_grad, sums if ctx.has_stats else None, None, None


# Compiled layers call it as it is: torch cannot trace a Triton kernel that takes a mask.
_apply: Callable[..., Tensor] = torch.compiler.disable(_MaskedBatchNorm.apply)  # type: ignore[no-untyped-call]


def _backend(frames: Tensor, weight: Tensor) -> ModuleType:
    """The implementation: Triton where it is available, for float32 weights; plain torch otherwise."""
    if not has_triton(frames) or weight.dtype != torch.float32:
        return _norm
    from attune.kernels import _triton_norm

    return _triton_norm

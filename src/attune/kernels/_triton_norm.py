"""Masked batch normalization in Triton: one launch forward and one backward, where torch needs a dozen each.

A program processes one channel, in one pass over its frames for each of mean, variance and result. There are no atomic
adds: results are bit-identical each time.
"""

# A kernel's arguments are pointers and numbers of the compiler's own types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# ruff: noqa: ANN001
# B batch, C channels, F frames
import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048
WARPS = 8
NUMBERS = ["items", "width"]


@triton.jit
def _places(start, items, width, padding, BLOCK: tl.constexpr) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Of a channel's next frames: the offset of each, whether it is in bounds, and whether it is no padding."""
    item = start + tl.arange(0, BLOCK)
    real = item < items
    row, frame = item // width, item % width
    place = (row.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * width + frame
    return place, real, tl.load(padding + item, mask=real, other=1) == 0


@triton.jit(do_not_specialize=NUMBERS)
def forward_kernel(
    frames, padding, count, weight, bias, center, normed, means, inv_stds, sums, items, width, eps,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    channel, channels = tl.program_id(0), tl.num_programs(0)
    frames_own = tl.load(count).to(tl.float32)
    gathered = tl.zeros([BLOCK], tl.float32)
    for start in range(0, items, BLOCK):
        place, _, own = _places(start, items, width, padding, BLOCK)
        gathered += tl.load(frames + place, mask=own, other=0.0).to(tl.float32)
    mean = tl.sum(gathered) / frames_own
    gathered = tl.zeros([BLOCK], tl.float32)
    for start in range(0, items, BLOCK):
        place, _, own = _places(start, items, width, padding, BLOCK)
        deviation = tl.load(frames + place, mask=own, other=0.0).to(tl.float32) - mean
        gathered += tl.where(own, deviation * deviation, 0.0)
    variance = tl.sum(gathered) / frames_own
    inv_std = 1.0 / tl.sqrt(variance + eps)
    scale = tl.load(weight + channel) * inv_std
    offset = tl.load(bias + channel) - mean * scale
    for start in range(0, items, BLOCK):
        place, real, _ = _places(start, items, width, padding, BLOCK)
        values = tl.load(frames + place, mask=real, other=0.0).to(tl.float32)
        tl.store(normed + place, (values * scale + offset).to(normed.dtype.element_ty), mask=real)
    shift = mean - tl.load(center + channel)
    tl.store(means + channel, mean)
    tl.store(inv_stds + channel, inv_std)
    tl.store(sums + channel, frames_own)
    tl.store(sums + channels + channel, shift * frames_own)
    tl.store(sums + 2 * channels + channel, (variance + shift * shift) * frames_own)


@triton.jit(do_not_specialize=NUMBERS)
def backward_kernel(
    gradient, frames, padding, count, weight, means, inv_stds, frames_grad, weight_grad, bias_grad, items, width,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    channel = tl.program_id(0)
    frames_own = tl.load(count).to(tl.float32)
    mean, inv_std = tl.load(means + channel), tl.load(inv_stds + channel)
    weight_sum = tl.zeros([BLOCK], tl.float32)
    bias_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(0, items, BLOCK):
        place, real, _ = _places(start, items, width, padding, BLOCK)
        wide = tl.load(gradient + place, mask=real, other=0.0).to(tl.float32)
        values = tl.load(frames + place, mask=real, other=0.0).to(tl.float32)
        bias_sum += wide
        weight_sum += wide * (values - mean) * inv_std
    total_weight, total_bias = tl.sum(weight_sum), tl.sum(bias_sum)
    tl.store(weight_grad + channel, total_weight)
    tl.store(bias_grad + channel, total_bias)
    scale = tl.load(weight + channel) * inv_std
    for start in range(0, items, BLOCK):
        place, real, own = _places(start, items, width, padding, BLOCK)
        wide = tl.load(gradient + place, mask=real, other=0.0).to(tl.float32)
        values = tl.load(frames + place, mask=real, other=0.0).to(tl.float32)
        common = (total_bias + (values - mean) * inv_std * total_weight) / frames_own
        found = (wide - tl.where(own, common, 0.0)) * scale
        tl.store(frames_grad + place, found.to(frames_grad.dtype.element_ty), mask=real)


def forward(
    frames: Tensor, padding: Tensor, count: Tensor, weight: Tensor, bias: Tensor, center: Tensor, eps: float
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """The normalized frames (B, C, F), mean and inverse deviation of each channel, and the statistics' sums (3, C)."""
    rows, channels, width = frames.shape
    normed = torch.empty_like(frames)
    means, inv_stds = torch.empty_like(weight), torch.empty_like(weight)
    sums = weight.new_empty(3, channels)
    forward_kernel[(channels,)](
        frames, padding.view(torch.uint8), count, weight, bias, center, normed, means, inv_stds, sums,
        rows * width, width, eps, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return normed, (means, inv_stds), sums


def backward(
    gradient: Tensor, frames: Tensor, padding: Tensor, count: Tensor, weight: Tensor, mean: Tensor, inv_std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of frames, weight and bias."""
    rows, channels, width = frames.shape
    frames_grad, weight_grad, bias_grad = torch.empty_like(frames), torch.empty_like(weight), torch.empty_like(weight)
    backward_kernel[(channels,)](
        gradient, frames, padding.view(torch.uint8), count, weight, mean, inv_std, frames_grad, weight_grad, bias_grad,
        rows * width, width, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return frames_grad, weight_grad, bias_grad

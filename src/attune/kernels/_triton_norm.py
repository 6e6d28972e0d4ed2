"""Batch normalization over own frames by Triton: one launch forward and one backward, where torch needs a dozen each.

A program takes a channel and goes over its frames once for each of mean, variance and result. Nothing is added
atomically: the same bits each time.
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
def _places(start, items, width, beyond, BLOCK: tl.constexpr) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Of a channel's next frames: where each is, whether it is there, and whether it is its row's own."""
    item = start + tl.arange(0, BLOCK)
    real = item < items
    row, frame = item // width, item % width
    place = (row.to(tl.int64) * tl.num_programs(0) + tl.program_id(0)) * width + frame
    return place, real, tl.load(beyond + item, mask=real, other=1) == 0


@triton.jit(do_not_specialize=NUMBERS)
def forward_kernel(
    frames, beyond, count, weight, bias, center, normed, means, rates, sums, items, width, least,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    channel, channels = tl.program_id(0), tl.num_programs(0)
    frames_own = tl.load(count).to(tl.float32)
    gathered = tl.zeros([BLOCK], tl.float32)
    for start in range(0, items, BLOCK):
        place, _, own = _places(start, items, width, beyond, BLOCK)
        gathered += tl.load(frames + place, mask=own, other=0.0).to(tl.float32)
    mean = tl.sum(gathered) / frames_own
    gathered = tl.zeros([BLOCK], tl.float32)
    for start in range(0, items, BLOCK):
        place, _, own = _places(start, items, width, beyond, BLOCK)
        deviation = tl.load(frames + place, mask=own, other=0.0).to(tl.float32) - mean
        gathered += tl.where(own, deviation * deviation, 0.0)
    variance = tl.sum(gathered) / frames_own
    rate = 1.0 / tl.sqrt(variance + least)
    scale = tl.load(weight + channel) * rate
    offset = tl.load(bias + channel) - mean * scale
    for start in range(0, items, BLOCK):
        place, real, _ = _places(start, items, width, beyond, BLOCK)
        values = tl.load(frames + place, mask=real, other=0.0).to(tl.float32)
        tl.store(normed + place, (values * scale + offset).to(normed.dtype.element_ty), mask=real)
    shift = mean - tl.load(center + channel)
    tl.store(means + channel, mean)
    tl.store(rates + channel, rate)
    tl.store(sums + channel, frames_own)
    tl.store(sums + channels + channel, shift * frames_own)
    tl.store(sums + 2 * channels + channel, (variance + shift * shift) * frames_own)


@triton.jit(do_not_specialize=NUMBERS)
def backward_kernel(
    gradient, frames, beyond, count, weight, means, rates, for_frames, for_weight, for_bias, items, width,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    channel = tl.program_id(0)
    frames_own = tl.load(count).to(tl.float32)
    mean, rate = tl.load(means + channel), tl.load(rates + channel)
    of_weight = tl.zeros([BLOCK], tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    for start in range(0, items, BLOCK):
        place, real, _ = _places(start, items, width, beyond, BLOCK)
        wide = tl.load(gradient + place, mask=real, other=0.0).to(tl.float32)
        values = tl.load(frames + place, mask=real, other=0.0).to(tl.float32)
        of_bias += wide
        of_weight += wide * (values - mean) * rate
    total_weight, total_bias = tl.sum(of_weight), tl.sum(of_bias)
    tl.store(for_weight + channel, total_weight)
    tl.store(for_bias + channel, total_bias)
    scale = tl.load(weight + channel) * rate
    for start in range(0, items, BLOCK):
        place, real, own = _places(start, items, width, beyond, BLOCK)
        wide = tl.load(gradient + place, mask=real, other=0.0).to(tl.float32)
        values = tl.load(frames + place, mask=real, other=0.0).to(tl.float32)
        common = (total_bias + (values - mean) * rate * total_weight) / frames_own
        found = (wide - tl.where(own, common, 0.0)) * scale
        tl.store(for_frames + place, found.to(for_frames.dtype.element_ty), mask=real)


def forward(
    frames: Tensor, beyond: Tensor, count: Tensor, weight: Tensor, bias: Tensor, center: Tensor, least: float
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """The normalized frames (B, C, F), mean and rate of each channel, and the tally's sums (3, C)."""
    rows, channels, width = frames.shape
    normed = torch.empty_like(frames)
    means, rates = torch.empty_like(weight), torch.empty_like(weight)
    sums = weight.new_empty(3, channels)
    forward_kernel[(channels,)](
        frames, beyond.view(torch.uint8), count, weight, bias, center, normed, means, rates, sums,
        rows * width, width, least, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return normed, (means, rates), sums


def backward(
    gradient: Tensor, frames: Tensor, beyond: Tensor, count: Tensor, weight: Tensor, mean: Tensor, rate: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of frames, weight and bias."""
    rows, channels, width = frames.shape
    for_frames, for_weight, for_bias = torch.empty_like(frames), torch.empty_like(weight), torch.empty_like(weight)
    backward_kernel[(channels,)](
        gradient, frames, beyond.view(torch.uint8), count, weight, mean, rate, for_frames, for_weight, for_bias,
        rows * width, width, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return for_frames, for_weight, for_bias

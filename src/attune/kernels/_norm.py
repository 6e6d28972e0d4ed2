"""Batch normalization over own frames by plain torch: what `_triton_norm` does, anywhere and in any precision."""

# B batch, C channels, F frames
import torch
from torch import Tensor


def forward(
    frames: Tensor, beyond: Tensor, count: Tensor, weight: Tensor, bias: Tensor, center: Tensor, least: float
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """The normalized frames (B, C, F), mean and rate of each channel, and the tally's sums (3, C)."""
    wide = frames.to(weight.dtype)
    mean = wide.masked_fill(beyond, 0).sum((0, 2)) / count
    deviations = (wide - mean[:, None]).masked_fill_(beyond, 0)
    variance = torch.linalg.vector_norm(deviations, dim=(0, 2)).square() / count
    rate = (variance + least).rsqrt()
    shift = mean - center
    sums = torch.stack([torch.ones_like(mean), shift, torch.addcmul(variance, shift, shift)]) * count
    scale = weight * rate
    offset = torch.addcmul(bias, mean, scale, value=-1)
    return torch.addcmul(offset[:, None], wide, scale[:, None]).to(frames.dtype), (mean, rate), sums


def backward(
    gradient: Tensor, frames: Tensor, beyond: Tensor, count: Tensor, weight: Tensor, mean: Tensor, rate: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of frames, weight and bias."""
    wide = gradient.to(weight.dtype)
    normed = (frames.to(weight.dtype) - mean[:, None]).mul_(rate[:, None])
    for_bias, for_weight = wide.sum((0, 2)), (wide * normed).sum((0, 2))
    # All frames are shifted and scaled by what the own frames have in common.
    common = torch.addcmul((for_bias / count)[:, None], normed, (for_weight / count)[:, None])
    for_frames = (wide - common.masked_fill_(beyond, 0)).mul_((weight * rate)[:, None])
    return for_frames.to(frames.dtype), for_weight, for_bias

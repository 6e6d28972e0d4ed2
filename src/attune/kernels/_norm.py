"""Masked batch normalization in plain torch: what `_triton_norm` does, on any device and in any precision."""

# B batch, C channels, F frames
import torch
from torch import Tensor


def forward(
    frames: Tensor, padding: Tensor, count: Tensor, weight: Tensor, bias: Tensor, center: Tensor, eps: float
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """The normalized frames (B, C, F), mean and inverse deviation of each channel, and the statistics' sums (3, C)."""
    wide = frames.to(weight.dtype)
    mean = wide.masked_fill(padding, 0).sum((0, 2)) / count
    deviations = (wide - mean[:, None]).masked_fill_(padding, 0)
    variance = torch.linalg.vector_norm(deviations, dim=(0, 2)).square() / count
    inv_std = (variance + eps).rsqrt()
    shift = mean - center
    sums = torch.stack([torch.ones_like(mean), shift, torch.addcmul(variance, shift, shift)]) * count
    scale = weight * inv_std
    offset = torch.addcmul(bias, mean, scale, value=-1)
    return torch.addcmul(offset[:, None], wide, scale[:, None]).to(frames.dtype), (mean, inv_std), sums


def backward(
    gradient: Tensor, frames: Tensor, padding: Tensor, count: Tensor, weight: Tensor, mean: Tensor, inv_std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of frames, weight and bias."""
    wide = gradient.to(weight.dtype)
    normed = (frames.to(weight.dtype) - mean[:, None]).mul_(inv_std[:, None])
    bias_grad, weight_grad = wide.sum((0, 2)), (wide * normed).sum((0, 2))
    # Padding contributes nothing to mean and variance, so they contribute nothing to its gradient.
    common = torch.addcmul((bias_grad / count)[:, None], normed, (weight_grad / count)[:, None])
    frames_grad = (wide - common.masked_fill_(padding, 0)).mul_((weight * inv_std)[:, None])
    return frames_grad.to(frames.dtype), weight_grad, bias_grad

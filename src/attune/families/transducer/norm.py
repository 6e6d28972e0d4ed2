"""Batch normalization that sees an utterance's own frames only, and whose running statistics belong to the step.

In training, a micro-batch is normalized with the statistics of its own frames. What they add up to over all
micro-batches and ranks of an optimizer step is gathered as gradients are: `tally` is a leaf whose "gradient", written
in backward, is a count and two sums for each channel, so whatever adds up gradients adds up these. `settle` then moves
the running statistics once. See docs/decisions/0012.
"""

# B batch, C channels, F frames
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within


class BatchNorm(nn.Module):
    """`nn.BatchNorm1d` over own frames, with the same names; `is_frozen` keeps the statistics it came with."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, channels: int, least_variance: float = 1e-5, is_frozen: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.int64))
        self.least_variance = least_variance
        self.momentum = 0.1
        self.is_frozen = is_frozen
        self.tally: Tensor | None = None

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Frames (B, C, F) normalized by channel; what lies beyond the own ones is never looked at."""
        with torch.autocast(frames.device.type, enabled=False):
            if self.training and not self.is_frozen:
                normed: Tensor = _Normalize.apply(  # type: ignore[no-untyped-call]
                    frames, lengths, self.weight, self.bias, self.tally, self.running_mean, self.least_variance
                )
                return normed
            return F.batch_norm(
                frames, self.running_mean, self.running_var, self.weight, self.bias, eps=self.least_variance
            )

    def begin_tally(self) -> Tensor:
        """A leaf whose gradient backward adds the sums of each micro-batch to."""
        self.tally = torch.zeros(1 + 2 * len(self.weight), device=self.weight.device, requires_grad=True)
        return self.tally

    @torch.no_grad()
    def settle(self, totals: Tensor) -> None:
        """Move the running statistics by what a step's micro-batches add up to, on all ranks alike."""
        count, shifts, squares = torch.split(totals.double(), [1, len(self.weight), len(self.weight)])
        if not self.training or self.is_frozen or float(count) < 2:
            return
        shift = shifts / count
        variance = (squares / count - shift.square()).clamp(min=0) * count / (count - 1)
        self.running_mean += (self.momentum * shift).to(self.running_mean.dtype)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked += 1


class _Normalize(torch.autograd.Function):
    """Keeps the frames as they came and nothing else of their size.

    Backward also gives the tally its sums: once, even where the forward ran a second time to save memory.
    """

    @staticmethod
    def forward(
        ctx: Any,
        frames: Tensor,
        lengths: Tensor,
        weight: Tensor,
        bias: Tensor,
        tally: Tensor | None,
        center: Tensor,
        least_variance: float,
    ) -> Tensor:
        is_own = within(lengths, frames.shape[2])[:, None]
        wide, count = frames.to(weight.dtype), lengths.sum().clamp(min=1)
        mean = wide.masked_fill(~is_own, 0).sum((0, 2)) / count
        variance = (wide - mean[:, None]).masked_fill(~is_own, 0).square().sum((0, 2)) / count
        rate = (variance + least_variance).rsqrt()
        shift = mean - center
        sums = torch.cat([count[None].to(mean.dtype), count * shift, count * (variance + shift.square())])
        ctx.save_for_backward(frames, lengths, weight, mean, rate, sums)
        ctx.has_tally = tally is not None
        scale = weight * rate
        return torch.addcmul((bias - mean * scale)[:, None], wide, scale[:, None]).to(frames.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        frames, lengths, weight, mean, rate, sums = ctx.saved_tensors
        wide = gradient.to(weight.dtype)
        normed = (frames.to(weight.dtype) - mean[:, None]) * rate[:, None]
        for_bias, for_weight = wide.sum((0, 2)), (wide * normed).sum((0, 2))
        # All frames are shifted and scaled by what the own frames have in common.
        common = torch.addcmul(for_bias[:, None], normed, for_weight[:, None]) / lengths.sum().clamp(min=1)
        common = common.masked_fill(~within(lengths, frames.shape[2])[:, None], 0)
        for_frames = (wide - common) * (weight * rate)[:, None]
        tally = sums if ctx.has_tally else None
        return for_frames.to(frames.dtype), None, for_weight, for_bias, tally, None, None

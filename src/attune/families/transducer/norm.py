"""Batch normalization that sees an utterance's own frames only, and whose running statistics belong to the step.

In training, a micro-batch is normalized with the statistics of its own frames. What they add up to over all
micro-batches and ranks of an optimizer step is gathered as gradients are: `tally` is a leaf whose "gradient", written
in backward, is a count and two sums for each channel, so whatever adds up gradients adds up these. `settle` then moves
the running statistics once. See docs/decisions/0012.
"""

# B batch, C channels, F frames
from typing import Any

import torch
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
            mean, variance = self.running_mean, self.running_var
            wide = frames.float() if mean.dtype == torch.float32 else frames
            if self.training and not self.is_frozen:
                is_own = within(lengths, frames.shape[2])[:, None]
                mean, variance, wide = self._own_statistics(wide, is_own)
            scale = self.weight * (variance + self.least_variance).rsqrt()
            normed = torch.addcmul((self.bias - mean * scale)[:, None], wide, scale[:, None])
        return normed.to(frames.dtype)

    def _own_statistics(self, frames: Tensor, is_own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and variance of the own frames, and the frames again, through which backward writes the tally."""
        count = is_own.sum().clamp(min=1)
        mean = frames.masked_fill(~is_own, 0).sum((0, 2)) / count
        centered = (frames - mean[:, None]).masked_fill(~is_own, 0)
        variance = centered.square().sum((0, 2)) / count
        if self.tally is not None:
            sums = self._sums(count, mean.detach(), variance.detach())
            frames = _Tally.apply(frames, self.tally, sums)  # type: ignore[no-untyped-call]
        return mean, variance, frames

    def _sums(self, count: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """The count, and the sums of deviations from the running mean and of their squares: (1 + 2 C,)."""
        shift = mean - self.running_mean
        return torch.cat([count[None].to(mean.dtype), count * shift, count * (variance + shift.square())])

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


class _Tally(torch.autograd.Function):
    """The frames as they are; backward gives `sums` to the tally, once, also when the forward ran twice."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor, tally: Tensor, sums: Tensor) -> Tensor:
        ctx.save_for_backward(sums)
        return frames.view_as(frames)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (sums,) = ctx.saved_tensors
        return gradient, sums, None

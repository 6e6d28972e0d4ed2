"""Batch normalization that sees an utterance's own frames only, and whose running statistics belong to the step.

In training, a micro-batch is normalized with the statistics of its own frames. What they add up to over all
micro-batches and ranks of an optimizer step is gathered as gradients are: `tally` is a leaf whose "gradient", written
in backward, is a count and two sums for each channel, so whatever adds up gradients adds up these. `settle` then moves
the running statistics once. See docs/decisions/0012.
"""

# B batch, C channels, F frames
from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families._own import Own
from attune.kernels.batch_norm import masked_batch_norm

MOMENTUM = 0.1


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
        self.is_frozen = is_frozen
        self.tally: Tensor | None = None

    @property
    def follows(self) -> bool:
        """Whether its statistics follow the data in training; those of a norm whose weights are frozen stay too."""
        return not self.is_frozen and any(each.requires_grad for each in self.parameters())

    @property
    def learns(self) -> bool:
        """Whether they do now."""
        return self.training and self.follows

    def forward(self, frames: Tensor, own: Own) -> Tensor:
        """Frames (B, C, F) normalized by channel; what lies beyond the own ones is never looked at."""
        with torch.autocast(frames.device.type, enabled=False):
            if self.learns:
                return masked_batch_norm(
                    frames, own.beyond, own.count, self.weight, self.bias, self.tally, self.running_mean,
                    self.least_variance,
                )  # fmt: skip
            return F.batch_norm(
                frames, self.running_mean, self.running_var, self.weight, self.bias, eps=self.least_variance
            )

    def begin_step(self) -> Tensor:
        """A leaf whose gradient backward adds the sums of each micro-batch to: frames, deviations and squares."""
        width = len(self.weight) if self.follows else 0
        self.tally = torch.zeros(3, width, device=self.weight.device, requires_grad=True)
        return self.tally

    @classmethod
    @torch.no_grad()
    def settle(cls, modules: Sequence[Self], totals: Sequence[Tensor]) -> None:
        """Move the running statistics by what a step's micro-batches add up to, on all ranks alike."""
        pairs = [(norm, each) for norm, each in zip(modules, totals, strict=True) if norm.learns]
        if not pairs:
            return
        moved, sums = zip(*pairs, strict=True)
        count, shifts, squares = torch.cat(sums, 1).double()
        shift = shifts / count.clamp(min=1)
        variance = (squares / count.clamp(min=1) - shift.square()).clamp(min=0) * count / (count - 1).clamp(min=1)
        rate = MOMENTUM * (count >= 2)  # one frame has no variance
        before = torch.cat([norm.running_var for norm in moved])
        sizes = [len(norm.weight) for norm in moved]
        for name, change in (("running_mean", rate * shift), ("running_var", rate * (variance - before))):
            parts = change.to(before.dtype).split(sizes)
            torch._foreach_add_([getattr(norm, name) for norm in moved], parts)
        torch._foreach_add_([norm.num_batches_tracked for norm in moved], 1)

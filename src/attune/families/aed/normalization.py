"""How features are normalized: by statistics of the training data (global), of each utterance (sentence), or not.

Global statistics are counted during the first epochs, as in SpeechBrain's InputNormalization: a step is normalized by
what the steps before it counted, the very first micro-batches by their own frames. What the micro-batches and ranks of
a step count is added up with the gradients (docs/decisions/0012), so it is the same on any number of ranks.
"""

# B batch, F frames, M mel bins
from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from attune.audio.features import within

Normalize = Literal["global", "sentence", "none"]
LEAST_DEVIATION = 1e-10


class FeatureNorm(nn.Module):
    """Features to zero mean and unit deviation by bin; `follows` tells whether the statistics are still counted."""

    mean: Tensor
    deviation: Tensor
    count: Tensor

    def __init__(self, bins: int, kind: Normalize) -> None:
        super().__init__()
        self.kind = kind
        self.follows = False
        self.tally: Tensor | None = None
        self.register_buffer("mean", torch.zeros(bins))
        self.register_buffer("deviation", torch.ones(bins))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Normalized frames (B, F, M)."""
        if self.kind == "none":
            return frames
        is_own = within(lengths, frames.shape[1])[..., None]
        if self.kind == "sentence":
            return _normalized(frames, *_statistics(frames, is_own, dims=(1,)))
        if not self.training or not self.follows:
            return _normalized(frames, self.mean, self.deviation)
        mean, deviation = (each[0, 0] for each in _statistics(frames, is_own, dims=(0, 1)))
        is_first = self.count == 0
        known = torch.where(is_first, mean, self.mean), torch.where(is_first, deviation, self.deviation)
        shifts = (frames - self.mean).masked_fill(~is_own, 0).double()
        own = lengths.sum().double().expand_as(self.mean)
        sums = torch.stack([own, shifts.sum((0, 1)), shifts.square().sum((0, 1))]).to(self.mean.dtype)
        normed = _normalized(frames, *known)
        return normed if self.tally is None else _Tallied.apply(normed, self.tally, sums)  # type: ignore[no-untyped-call]

    def begin_step(self) -> Tensor:
        """A leaf whose gradient backward adds to what each micro-batch counts: frames, deviations and squares."""
        self.tally = torch.zeros(3, len(self.mean), device=self.mean.device, requires_grad=True)
        return self.tally

    @classmethod
    @torch.no_grad()
    def settle(cls, modules: Sequence[Self], totals: Sequence[Tensor]) -> None:
        """Add what a step counted to the statistics, on all ranks alike."""
        for norm, total in zip(modules, totals, strict=True):
            counted, shifts, squares = total.double()
            whole = (norm.count + counted).clamp(min=1)
            spread = norm.count * norm.deviation.double().square() + squares - shifts.square() / whole
            has_more = counted > 0
            deviation = (spread.clamp(min=0) / whole).sqrt().clamp(min=LEAST_DEVIATION).to(norm.deviation.dtype)
            norm.deviation.copy_(torch.where(has_more, deviation, norm.deviation))
            norm.mean.add_((shifts / whole).to(norm.mean.dtype))
            norm.count.add_(counted[0])


class _Tallied(torch.autograd.Function):
    """Its first argument; in backward, the sums go to the tally."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor, tally: Tensor, sums: Tensor) -> Tensor:
        ctx.save_for_backward(sums)
        return frames.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, ctx.saved_tensors[0], None


def _statistics(frames: Tensor, is_own: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the own frames over these dimensions, in float64 so that padding does not show."""
    count = is_own.double().sum(dims, keepdim=True)
    wide = frames.double()
    mean = wide.masked_fill(~is_own, 0).sum(dims, keepdim=True) / count
    squares = (wide - mean).masked_fill(~is_own, 0).square().sum(dims, keepdim=True)
    deviation = (squares / count).sqrt().clamp(min=LEAST_DEVIATION)
    return mean.to(frames.dtype), deviation.to(frames.dtype)


def _normalized(frames: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return (frames - mean) / deviation

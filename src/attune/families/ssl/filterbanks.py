"""Upstreams without weights: a function of the samples, with one layer."""

# B batch, F frames, D features
from collections.abc import Callable

from torch import Tensor, nn

from attune.audio.features import HOP
from attune.types import Masks

Features = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class FilterbankUpstream(nn.Module):
    """Features every 10 ms, in float64 where the device has it."""

    applies_masks = False
    max_seconds: float | None = None
    stride = HOP

    def __init__(self, features: Features, count: Callable[[int], int], width: int) -> None:
        super().__init__()
        self.features = features
        self.count = count
        self.widths: tuple[int, ...] = (width,)

    def forward(self, audio: Tensor, lengths: Tensor, masks: Masks | None = None) -> tuple[list[Tensor], Tensor]:
        """One layer (B, F, D), and how many frames are each row's own."""
        frames, counts = self.features(audio, lengths)
        return [frames], counts

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        return self.count(samples)

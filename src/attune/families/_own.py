"""Which frames are each utterance's own: made once for all the layers of one frame rate."""

# B batch, C channels, F frames
from dataclasses import dataclass

from torch import Tensor

from attune.audio.features import within


@dataclass(frozen=True, slots=True)
class Own:
    """The own frames of a batch."""

    lengths: Tensor  # (B,)
    beyond: Tensor  # (B, 1, F): where there is nothing but padding
    count: Tensor  # of all own frames, at least one

    def only(self, frames: Tensor) -> Tensor:
        """Frames (B, C, F) with zeros beyond the own ones."""
        return frames.masked_fill(self.beyond, 0)

    def strided(self, stride: int) -> "Own":
        """The own frames of what a convolution with a stride makes of these."""
        return own_of((self.lengths + stride - 1) // stride, (self.beyond.shape[2] + stride - 1) // stride)


def own_of(lengths: Tensor, frames: int) -> Own:
    """The own frames of rows of these lengths (B,), padded to so many frames."""
    return Own(lengths, ~within(lengths, frames)[:, None], lengths.sum().clamp(min=1))

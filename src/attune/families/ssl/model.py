"""An upstream and a task head as one model."""

# B batch, F frames, D width
from typing import Protocol

from torch import Tensor, nn

from attune.audio.features import stack_frames
from attune.types import Batch, Head, Loss, Scorer


class Upstream(Protocol):
    """An encoder of audio; an `nn.Module` that reads every row up to its own length only."""

    width: int

    def __call__(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, F, width) and how many of them are each row's own."""

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""


class SslModel(nn.Module):
    """What the loop trains and the search decodes: the upstream's frames, `stack` at a time, given to the head."""

    def __init__(self, upstream: Upstream, stack: int, head: Head) -> None:
        super().__init__()
        self.upstream = upstream
        self.stack = stack
        self.head = head

    def loss(self, batch: Batch) -> Loss:
        """The head's loss, summed over the batch."""
        return self.head.loss(*self._encode(batch), batch)

    def scorer(self, batch: Batch) -> Scorer:
        """What the head says about the batch, for a search."""
        return self.head.scorer(*self._encode(batch))

    def frames(self, samples: int) -> int:
        """How many frames the head gets to see."""
        return -(-self.upstream.frames(samples) // self.stack)

    def _encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        frames, lengths = self.upstream(batch.audio, batch.lengths)  # (B, F, D)
        return stack_frames(frames, lengths, self.stack)

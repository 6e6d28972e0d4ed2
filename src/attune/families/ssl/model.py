"""An upstream and a task head as one model."""

# B batch, F frames, D width
from typing import Protocol

from torch import Tensor, nn

from attune.audio.features import stack_frames
from attune.audio.masking import mask_features
from attune.contracts import Head
from attune.types import Batch, Loss, Scorer


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
        frames, lengths = self._frames(batch)
        if batch.masks:
            frames = mask_features(frames, lengths, batch.masks)
        return self.head.loss(*stack_frames(frames, lengths, self.stack), batch)

    def scorer(self, batch: Batch) -> Scorer:
        """What the head says about the batch, for a search."""
        return self.head.scorer(*stack_frames(*self._frames(batch), self.stack), batch)

    def frames(self, samples: int) -> int:
        """How many frames the head gets to see."""
        return -(-self.upstream.frames(samples) // self.stack)

    def graph_samples(self, samples: int) -> int | None:
        """None: LSTM layers look at the lengths."""
        return None

    def _frames(self, batch: Batch) -> tuple[Tensor, Tensor]:
        frames: tuple[Tensor, Tensor] = self.upstream(batch.audio, batch.lengths)  # (B, F, D), (B,)
        return frames

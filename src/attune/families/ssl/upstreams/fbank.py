"""SUPERB's baseline: log-mel energies with deltas, normalized by utterance. Nothing to train, nothing to fetch."""

from torch import Tensor, nn

from attune.audio.features import fbank, frame_count


class Fbank(nn.Module):
    """240 features every 10 ms, in float64 where the device has it."""

    width = 240

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, F, 240) and how many of them are each row's own."""
        return fbank(audio, lengths)

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        return frame_count(samples)

"""SpeechBrain's log-mel energies in decibels, normalized.

A row is a function of its own samples: the floor, 80 dB below the loudest energy, is that of each utterance.
"""

# B batch, T samples, F frames, M mel bins
import math

import torch
from torch import Tensor, nn

from attune.audio.features import within
from attune.families.aed.normalization import FeatureNorm, Normalize
from attune.families.aed.shape import AedShape
from attune.types import SAMPLE_RATE

LEAST_ENERGY = 1e-10
RANGE = 80.0  # decibels


class AedFrontEnd(nn.Module):
    """Samples to normalized energies."""

    window: Tensor
    bank: Tensor

    def __init__(self, shape: AedShape, normalize: Normalize) -> None:
        super().__init__()
        self.shape = shape
        self.norm = FeatureNorm(shape.mels, normalize)
        self.register_buffer("window", torch.hamming_window(shape.transform), persistent=False)
        self.register_buffer("bank", mel_bank(shape.mels, shape.transform), persistent=False)

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, F, M) and how many are each row's own (B,)."""
        with torch.autocast(audio.device.type, enabled=False):
            energies, counts = self.energies(audio, lengths)
            return self.norm(energies, counts), counts

    @torch.no_grad()
    def energies(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Energies in decibels (B, F, M), before they are normalized."""
        shape = self.shape
        own = audio.masked_fill(~within(lengths, audio.shape[1]), 0)
        spectrum = torch.stft(
            own, shape.transform, shape.hop, window=self.window, pad_mode="constant", return_complex=True
        )
        powers = (spectrum.real.square() + spectrum.imag.square()).double()
        decibels = 10 * (powers.transpose(1, 2) @ self.bank.double()).clamp(min=LEAST_ENERGY).log10()
        counts = lengths // shape.hop + 1
        is_own = within(counts, decibels.shape[1])[..., None]
        floor = decibels.masked_fill(~is_own, -torch.inf).amax((1, 2), keepdim=True) - RANGE
        return torch.maximum(decibels, floor).float(), counts

    def frames(self, samples: int) -> int:
        """How many frames so many samples have."""
        return samples // self.shape.hop + 1


def mel_bank(bins: int, transform: int) -> Tensor:
    """SpeechBrain's triangles (transform / 2 + 1, bins): each as wide to the right as it is to the left."""
    top = 2595 * math.log10(1 + SAMPLE_RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bins + 2) / 2595) - 1)
    points = torch.linspace(0, SAMPLE_RATE // 2, transform // 2 + 1)[:, None]
    slope = (points - edges[1:-1]) / edges.diff()[:-1]
    return torch.minimum(1 + slope, 1 - slope).clamp(min=0)

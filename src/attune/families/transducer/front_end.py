"""NeMo's log-mel energies, batched and on the batch's device; a row is a function of its own samples.

The spectrum is taken in float32, as in the models' training; what is added up after it in float64, so
that the order in which a batch's sums are taken does not show.
"""

# B batch, T samples, M mel bins, F frames
import math

import torch
from torch import Tensor, nn

from attune.audio.features import within
from attune.families.transducer.shape import FrontEndShape
from attune.types import SAMPLE_RATE

LEAST_ENERGY = 2.0**-24
LEAST_DEVIATION = 1e-5


class Featurizer(nn.Module):
    """The window and the mel triangles, which a checkpoint brings along."""

    window: Tensor
    fb: Tensor

    def __init__(self, shape: FrontEndShape) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(shape.window, periodic=False))
        self.register_buffer("fb", mel_bank(shape.bins, shape.transform)[None])


class FrontEnd(nn.Module):
    """Samples to normalized log-mel energies."""

    def __init__(self, shape: FrontEndShape) -> None:
        super().__init__()
        self.shape = shape
        self.featurizer = Featurizer(shape)

    @torch.no_grad()
    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Energies (B, M, F), zero beyond the own frames, and how many are each row's own (B,)."""
        with torch.autocast(audio.device.type, enabled=False):
            if self.training:
                audio = audio + self.shape.dither * torch.randn_like(audio)
            # The window about the samples' end is nobody's own frame.
            emphasized = _emphasized(audio, lengths, self.shape.preemphasis)
            energies = self._energies(emphasized)[..., : self.frames(audio.shape[1])]
            counts = (lengths // self.shape.hop).clamp(min=1)
            logs = (energies + LEAST_ENERGY).log()
            return (_normalized(logs, counts) if self.shape.is_normalized else _own_only(logs, counts)).float(), counts

    def frames(self, samples: int) -> int:
        """How many frames so many samples have: whole hops, and at least one."""
        return max(1, samples // self.shape.hop)

    def piece(self, samples: Tensor) -> Tensor:
        """Log-mel energies (M, F) of windows that begin at every hop of emphasized samples (T,), not normalized."""
        return (self._energies(samples[None], center=False)[0] + LEAST_ENERGY).log().float()

    def _energies(self, audio: Tensor, center: bool = True) -> Tensor:
        """Mel energies (B, M, T / hop + 1) of windows around every hop."""
        shape, window = self.shape, self.featurizer.window
        spectrum = torch.stft(
            audio, shape.transform, shape.hop, shape.window, window, center, "constant", return_complex=True
        )
        dtype = torch.float32 if audio.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
        powers = spectrum.real.to(dtype).square() + spectrum.imag.to(dtype).square()
        return self.featurizer.fb.to(dtype) @ powers


def _emphasized(audio: Tensor, lengths: Tensor, preemphasis: float) -> Tensor:
    emphasized = torch.cat([audio[:, :1], audio[:, 1:] - preemphasis * audio[:, :-1]], dim=1)
    return emphasized.masked_fill(~within(lengths, audio.shape[1]), 0)


def _own_only(frames: Tensor, counts: Tensor) -> Tensor:
    """The own frames, and zero beyond them."""
    return frames.masked_fill(~within(counts, frames.shape[2])[:, None], 0)


def _normalized(frames: Tensor, counts: Tensor) -> Tensor:
    """Zero mean and unit deviation (of a sample) of each bin over the own frames; zero beyond them."""
    is_own = within(counts, frames.shape[2])[:, None]
    own = counts[:, None, None]
    centered = (frames - frames.masked_fill(~is_own, 0).sum(2, keepdim=True) / own).masked_fill(~is_own, 0)
    deviation = (centered.square().sum(2, keepdim=True) / (own - 1).clamp(min=1)).sqrt()
    return centered / (deviation + LEAST_DEVIATION)


def mel_bank(bins: int, transform: int) -> Tensor:
    """Slaney's triangles of equal area (bins, transform / 2 + 1): straight up to 1 kHz, logarithmic above."""
    step = math.log(6.4) / 27  # of one mel above 1 kHz, which is mel 15
    mels = torch.linspace(0, 15 + math.log(SAMPLE_RATE / 2000) / step, bins + 2, dtype=torch.float64)
    edges = torch.where(mels < 15, 200 * mels / 3, 1000 * torch.exp(step * (mels - 15)))[:, None]
    points = torch.linspace(0, SAMPLE_RATE / 2, transform // 2 + 1, dtype=torch.float64)
    widths = edges.diff(dim=0)
    rise, fall = (points - edges[:-2]) / widths[:-1], (edges[2:] - points) / widths[1:]
    return (torch.minimum(rise, fall).clamp(min=0) * (2 / (edges[2:] - edges[:-2]))).float()

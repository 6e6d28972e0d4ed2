"""NeMo's log-mel energies, batched and on the batch's device; a row is a function of its own samples.

The spectrum is taken in float32, as the models heard it in their training; what is added up after it in float64, so
that the order in which a batch's sums are taken does not show.
"""

# B batch, T samples, M mel bins, F frames
import functools
import math

import torch
from torch import Tensor

from attune.audio.features import within
from attune.families.transducer.shape import FrontEnd
from attune.types import SAMPLE_RATE

PREEMPHASIS = 0.97
LEAST_ENERGY = 2.0**-24
LEAST_DEVIATION = 1e-5


def frame_count(samples: int, shape: FrontEnd) -> int:
    """How many frames so many samples have: whole hops, and at least one."""
    return max(1, samples // shape.hop)


def log_mel(audio: Tensor, lengths: Tensor, shape: FrontEnd, is_training: bool = False) -> tuple[Tensor, Tensor]:
    """Normalized log-mel energies (B, M, F), zero beyond the own frames, and how many are each row's own (B,)."""
    with torch.no_grad(), torch.autocast(audio.device.type, enabled=False):
        if is_training:
            audio = audio + shape.dither * torch.randn_like(audio)
        energies = _energies(_emphasized(audio, lengths), shape)
        counts = (lengths // shape.hop).clamp(min=1)
        return _normalized((energies + LEAST_ENERGY).log(), counts).float(), counts


def _emphasized(audio: Tensor, lengths: Tensor) -> Tensor:
    emphasized = torch.cat([audio[:, :1], audio[:, 1:] - PREEMPHASIS * audio[:, :-1]], dim=1)
    return emphasized.masked_fill(~within(lengths, audio.shape[1]), 0)


def _energies(audio: Tensor, shape: FrontEnd) -> Tensor:
    """Mel energies (B, M, T / hop + 1) of windows around every hop."""
    window = _hann(shape.window, audio.device)
    spectrum = torch.stft(
        audio, shape.transform, shape.hop, shape.window, window, center=True, pad_mode="constant", return_complex=True
    )
    dtype = torch.float32 if audio.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
    powers = spectrum.real.to(dtype).square() + spectrum.imag.to(dtype).square()
    return _mel_bank(shape.bins, shape.transform, dtype, audio.device) @ powers


def _normalized(frames: Tensor, counts: Tensor) -> Tensor:
    """Zero mean and unit deviation (of a sample) of each bin over the own frames; zero beyond them."""
    is_own = within(counts, frames.shape[2])[:, None]
    own = counts[:, None, None]
    centered = (frames - frames.masked_fill(~is_own, 0).sum(2, keepdim=True) / own).masked_fill(~is_own, 0)
    deviation = (centered.square().sum(2, keepdim=True) / (own - 1).clamp(min=1)).sqrt()
    return centered / (deviation + LEAST_DEVIATION)


@functools.cache
def _hann(window: int, device: torch.device) -> Tensor:
    return hann(window).to(device)


@functools.cache
def _mel_bank(bins: int, transform: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return mel_bank(bins, transform).to(device, dtype)


def hann(window: int) -> Tensor:
    """The window (window,) in float32, as models have it."""
    return torch.hann_window(window, periodic=False)


def mel_bank(bins: int, transform: int) -> Tensor:
    """Slaney's triangles of equal area (bins, transform / 2 + 1): straight up to 1 kHz, logarithmic above."""
    step = math.log(6.4) / 27  # of one mel above 1 kHz, which is mel 15
    mels = torch.linspace(0, 15 + math.log(SAMPLE_RATE / 2000) / step, bins + 2, dtype=torch.float64)
    edges = torch.where(mels < 15, 200 * mels / 3, 1000 * torch.exp(step * (mels - 15)))[:, None]
    points = torch.linspace(0, SAMPLE_RATE / 2, transform // 2 + 1, dtype=torch.float64)
    widths = edges.diff(dim=0)
    rise, fall = (points - edges[:-2]) / widths[:-1], (edges[2:] - points) / widths[1:]
    return (torch.minimum(rise, fall).clamp(min=0) * (2 / (edges[2:] - edges[:-2]))).float()

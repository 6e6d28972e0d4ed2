"""Samples to features: log-mel energies, their deltas, and normalization, batched and on the batch's device.

Each row depends on its own samples only: padding is never read, and its features are zero. Everything is computed in
float64, so that the summation order of a batch does not change the float32 result.
"""

# B batch, T samples, F frames, D features
import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.types import SAMPLE_RATE

WINDOW = SAMPLE_RATE // 40  # 25 ms
HOP = SAMPLE_RATE // 100  # 10 ms
TRANSFORM = 512  # the window, padded to a power of two
LOWEST_HERTZ = 20.0
PREEMPHASIS = 0.97
ENERGY_FLOOR = torch.finfo(torch.float32).eps  # log-mel of digital silence, as in Kaldi
DEVIATION_FLOOR = 1e-3  # a smaller deviation is silence, which must not be amplified


def frame_count(samples: int) -> int:
    """The number of frames of `fbank`: full windows, at least one."""
    return 1 + max(0, samples - WINDOW) // HOP


def fbank(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """S3PRL's `fbank` features (B, F, 240): 80 log-mel bins with deltas of order 1 and 2, normalized by utterance."""
    frames, counts = log_mel(audio, lengths)
    slopes = deltas(frames, counts)
    features = torch.cat([frames, slopes, deltas(slopes, counts)], dim=-1)
    return normalize(features, counts), counts


def log_mel(audio: Tensor, lengths: Tensor, bins: int = 80) -> tuple[Tensor, Tensor]:
    """Kaldi's log-mel energies (B, F, bins) without dither, and the number of frames of each row (B,)."""
    windows, counts = centered_windows(audio, lengths)
    energies = power_spectrum(windows) @ _mel_bank(bins, windows.dtype, audio.device)
    return mask_padding(energies.clamp(min=ENERGY_FLOOR).log(), counts), counts


def centered_windows(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Kaldi's windows without their mean (B, F, WINDOW), and the number of each row (B,)."""
    counts = 1 + (lengths - WINDOW).clamp(min=0) // HOP
    samples = audio.to(precise_dtype(audio.device)).masked_fill(~within(lengths, audio.shape[1]), 0)
    # An utterance shorter than one window is padded with silence.
    samples = F.pad(samples, (0, max(0, WINDOW - audio.shape[1])))
    windows = samples.unfold(1, WINDOW, HOP)
    return windows - windows.mean(-1, keepdim=True), counts


def power_spectrum(windows: Tensor) -> Tensor:
    """Kaldi's power spectrum (B, F, TRANSFORM / 2 + 1) of windows (B, F, WINDOW)."""
    windows = windows - PREEMPHASIS * torch.cat([windows[..., :1], windows[..., :-1]], dim=-1)
    spectrum = torch.fft.rfft(windows * _povey(windows.dtype, windows.device), n=TRANSFORM)
    powers: Tensor = spectrum.real.square() + spectrum.imag.square()
    return powers


def deltas(frames: Tensor, lengths: Tensor) -> Tensor:
    """The delta features over five frames, with the first and last frame of each row repeated at its edges."""
    last = (lengths - 1)[:, None]  # (B, 1)
    here = torch.arange(frames.shape[1], device=frames.device)[None]  # (1, F)

    def shifted(by: int) -> Tensor:
        index = torch.minimum((here + by).clamp(min=0), last)
        return frames.gather(1, index[..., None].expand_as(frames))

    slope = (shifted(1) - shifted(-1) + 2 * (shifted(2) - shifted(-2))) / 10
    return mask_padding(slope, lengths)


def normalize(frames: Tensor, lengths: Tensor) -> Tensor:
    """Zero mean and unit deviation of each feature over the row's own frames."""
    counts = lengths[:, None, None]
    centered = mask_padding(frames - mask_padding(frames, lengths).sum(1, keepdim=True) / counts, lengths)
    deviation = (centered.square().sum(1, keepdim=True) / counts).sqrt()
    return centered / deviation.clamp(min=DEVIATION_FLOOR)


def stack_frames(frames: Tensor, lengths: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Join `factor` neighbouring frames into one (B, F / factor, D × factor); zeros complete a row's last one."""
    rows, size, width = frames.shape
    count = (size + factor - 1) // factor
    frames = F.pad(mask_padding(frames, lengths), (0, 0, 0, count * factor - size))
    return frames.reshape(rows, count, width * factor), (lengths + factor - 1) // factor


def within(lengths: Tensor, size: int) -> Tensor:
    """The mask of positions inside each row's length (B, size)."""
    return torch.arange(size, device=lengths.device)[None] < lengths[:, None]


def mask_padding(frames: Tensor, lengths: Tensor) -> Tensor:
    """The frames (B, F, D) with zeros beyond each row's length."""
    return frames.masked_fill(~within(lengths, frames.shape[1])[..., None], 0)


def precise_dtype(device: torch.device) -> torch.dtype:
    """What sums are taken in, so that their order does not show."""
    return torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64


@functools.cache
def _povey(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.hann_window(WINDOW, periodic=False, dtype=torch.float64).pow(0.85).to(device, dtype)


@functools.cache
def _mel_bank(bins: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Triangular filters on the mel scale (TRANSFORM / 2 + 1, bins)."""
    edges = torch.linspace(_mel(LOWEST_HERTZ), _mel(SAMPLE_RATE / 2), bins + 2, dtype=torch.float64)
    hertz = torch.arange(TRANSFORM // 2 + 1, dtype=torch.float64) * SAMPLE_RATE / TRANSFORM
    points = 1127 * torch.log1p(hertz / 700)[:, None]
    rise = (points - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - points) / (edges[2:] - edges[1:-1])
    return torch.minimum(rise, fall).clamp(min=0).to(device, dtype)


def _mel(hertz: float) -> float:
    return 1127 * math.log1p(hertz / 700)

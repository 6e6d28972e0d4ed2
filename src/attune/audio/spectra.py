"""S3PRL's other baselines beside `fbank`: cepstra, and spectra on the mel and the linear scale.

As in `attune.audio.features`, a row depends on its own samples only, and everything is computed in float64.
"""

# B batch, T samples, F frames, D features
import functools
import math

import torch
from torch import Tensor

from attune.audio.features import (
    ENERGY_FLOOR,
    HOP,
    WINDOW,
    centered_windows,
    deltas,
    log_mel,
    mask_padding,
    normalize,
    power_spectrum,
    precise_dtype,
)
from attune.types import SAMPLE_RATE

CEPSTRAL_BINS, CEPSTRA, LIFTER = 23, 13, 22
MEL_BINS = 80
LEAST_POWER = 1e-10


def mfcc(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Kaldi's 13 cepstra with deltas of order 1 and 2 (B, F, 39), normalized by utterance, and the frames of rows."""
    energies, counts = log_mel(audio, lengths, CEPSTRAL_BINS)
    cepstra = mask_padding(energies @ _cosines(energies.dtype, audio.device), counts)
    slopes = deltas(cepstra, counts)
    return normalize(torch.cat([cepstra, slopes, deltas(slopes, counts)], dim=-1), counts), counts


def spectrogram(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Kaldi's log power spectrum (B, F, 257), the frame's energy first, normalized by utterance."""
    windows, counts = centered_windows(audio, lengths)
    energies = windows.square().sum(-1, keepdim=True)
    powers = torch.cat([energies, power_spectrum(windows)[..., 1:]], dim=-1)
    return normalize(mask_padding(powers.clamp(min=ENERGY_FLOOR).log(), counts), counts), counts


def mel(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The log power on the mel scale (B, F, 80) of windows around each frame, normalized by utterance."""
    powers, counts = _power(audio, lengths)
    return _logs(powers @ _mel_bank(powers.dtype, audio.device), counts)


def linear(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The log power spectrum (B, F, 201) of windows around each frame, normalized by utterance."""
    return _logs(*_power(audio, lengths))


def centered_count(samples: int) -> int:
    """The number of frames of `mel` and `linear`."""
    return 1 + samples // HOP


def _power(audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The power (B, F, 201) of windows around each frame; a row is mirrored at its own ends."""
    reach, dtype = WINDOW // 2, precise_dtype(audio.device)
    last = (lengths - 1).clamp(min=0)[:, None]
    here = torch.arange(-reach, audio.shape[1] + reach, device=audio.device).abs()
    places = torch.where(here <= last, here, 2 * last - here).clamp(min=0)
    windows = audio.to(dtype).gather(1, places.clamp(max=audio.shape[1] - 1)).unfold(1, WINDOW, HOP)
    spectrum = torch.fft.rfft(windows * _hann(dtype, audio.device))
    return spectrum.real.square() + spectrum.imag.square(), 1 + lengths // HOP


def _logs(powers: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    return normalize(mask_padding((powers + LEAST_POWER).log(), counts), counts), counts


@functools.cache
def _hann(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.hann_window(WINDOW, dtype=torch.float64).to(device, dtype)


@functools.cache
def _mel_bank(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Triangles of equal height (WINDOW / 2 + 1, bins), at equal distances on the mel scale of HTK."""
    highest = 2595 * math.log10(1 + SAMPLE_RATE / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, highest, MEL_BINS + 2, dtype=torch.float64) / 2595) - 1)
    points = torch.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1, dtype=torch.float64)[:, None]
    rise = (points - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - points) / (edges[2:] - edges[1:-1])
    return torch.minimum(rise, fall).clamp(min=0).to(device, dtype)


@functools.cache
def _cosines(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The cosine transform to cepstra (bins, cepstra), with Kaldi's lifter."""
    orders = torch.arange(CEPSTRA, dtype=torch.float64)
    places = (torch.arange(CEPSTRAL_BINS, dtype=torch.float64) + 0.5)[:, None]
    cosines = (math.pi / CEPSTRAL_BINS * places * orders).cos() * math.sqrt(2 / CEPSTRAL_BINS)
    cosines[:, 0] = math.sqrt(1 / CEPSTRAL_BINS)
    return (cosines * (1 + LIFTER / 2 * (math.pi * orders / LIFTER).sin())).to(device, dtype)

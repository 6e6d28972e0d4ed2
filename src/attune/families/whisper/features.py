"""Whisper's log-mel energies, batched and on the batch's device: the same bits as transformers' extractor on the CPU.

Only the part with audio in it is computed, and the silence after it filled in. A row is a function of its own samples.
"""

# B batch, T samples, M mel bins, F frames
import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attune.audio.features import within
from attune.types import SAMPLE_RATE

WINDOW = SAMPLE_RATE // 40  # 25 ms
HOP = SAMPLE_RATE // 100  # 10 ms
LONGEST = 30 * SAMPLE_RATE  # what an encoder's window holds
SILENCE = -10.0  # log10 of the least energy
RANGE = 8.0  # what is quieter than the loudest by more than this is cut off


def log_mel(audio: Tensor, lengths: Tensor, bins: int, frames: int) -> Tensor:
    """Log-mel energies (B, bins, frames) of the rows' own samples, ended with silence up to 30 s or cut there."""
    with torch.autocast(audio.device.type, enabled=False):
        samples = _computed_samples(audio.shape[1])
        audio = audio[:, :samples].float().masked_fill(~within(lengths, audio.shape[1])[:, :samples], 0)
        audio = F.pad(audio, (0, samples - audio.shape[1]))
        energies = _energies(audio, bins)
        # The last windows reach into the mirrored end, which is the extractor's own only at 30 s.
        count = min(frames, (samples if samples == LONGEST else samples - WINDOW) // HOP)
        logs = energies.clamp(min=10**SILENCE).log10()
        loudest = logs.amax((1, 2), keepdim=True)
        logs = F.pad(logs[..., :count], (0, frames - count), value=SILENCE)
        return (torch.maximum(logs, loudest - RANGE) + 4) / 4


def _computed_samples(longest: int) -> int:
    """Whole seconds with room for the window that is the last to see audio.

    A product of very few frames would add up in another order.
    """
    return min(LONGEST, -(-(longest + 2 * WINDOW) // SAMPLE_RATE) * SAMPLE_RATE)


def _energies(audio: Tensor, bins: int) -> Tensor:
    spectrum = torch.stft(audio, WINDOW, HOP, window=_hann(audio.device), return_complex=True)
    return _mel_bank(bins, audio.device).T @ _powers(spectrum[..., :-1]).contiguous()


def _powers(spectrum: Tensor) -> Tensor:
    if spectrum.is_cuda:  # where torch compiles the magnitude of complex numbers on the spot, which takes a second
        return spectrum.real.square() + spectrum.imag.square()
    return spectrum.abs() ** 2


@functools.cache
def _hann(device: torch.device) -> Tensor:
    return torch.hann_window(WINDOW, device=device)


@functools.cache
def _mel_bank(bins: int, device: torch.device) -> Tensor:
    """Slaney's triangles of equal area (WINDOW / 2 + 1, bins): straight up to 1 kHz, logarithmic above."""
    step = np.log(6.4) / 27  # of one mel above 1 kHz, which is mel 15
    mels = np.linspace(0, 15 + np.log(SAMPLE_RATE / 2000) / step, bins + 2)
    edges = np.where(mels < 15, 200 * mels / 3, 1000 * np.exp(step * (mels - 15)))
    points = np.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1)[:, None]
    widths = np.diff(edges)
    rise = (points - edges[:-2]) / widths[:-1]
    fall = (edges[2:] - points) / widths[1:]
    triangles = np.maximum(0, np.minimum(rise, fall)) * (2 / (edges[2:] - edges[:-2]))
    return torch.from_numpy(triangles).float().to(device)

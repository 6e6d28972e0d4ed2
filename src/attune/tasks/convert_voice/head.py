"""The voice conversion head: encoder frames → LSTM layers → the target speaker's mel spectrum → Griffin-Lim.

It learns to rebuild the target speaker's own speech; an encoder that leaves the speaker out makes that a conversion.
"""

# B batch, T samples, F frames, D width, K frequencies, M mel bins
from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attune.audio.features import within
from attune.scorers import ScorerKind, WaveformScorer
from attune.tasks._precision import as_precise, spectral_dtype
from attune.tasks._spectrum import SMALLEST, ShortTimeSpectrum, at_frames
from attune.types import SAMPLE_RATE, Batch, Loss

if TYPE_CHECKING:
    from attune.tasks.convert_voice.settings import VoiceHeadConfig

FLOOR = 1e-5  # of a magnitude
TYPICAL = -3.0  # log magnitude of speech, where learning begins


class VoiceHead(nn.Module):
    """The mel spectrum of the target speaker."""

    scorer_kind: ScorerKind = "waveform"

    def __init__(self, width_in: int, stride: int, settings: VoiceHeadConfig) -> None:
        super().__init__()
        self.spectrum = ShortTimeSpectrum.of_hop(stride)
        self.bins, self.iterations = settings.bins, settings.iterations
        width = settings.width
        self.projection = nn.Linear(width_in, width)
        self.layers = nn.ModuleList(
            nn.LSTM(width if layer == 0 else 2 * width, width, bidirectional=True) for layer in range(settings.layers)
        )
        self.output = nn.Linear(2 * width, settings.bins)
        nn.init.constant_(self.output.bias, TYPICAL)

    def forward(self, frames: Tensor, lengths: Tensor, wanted: int) -> Tensor:
        """Log magnitudes of mel bins (B, F, M) for so many frames of the spectrum."""
        projected = self.projection(frames).relu()
        packed = pack_padded_sequence(projected, lengths.cpu(), batch_first=True, enforce_sorted=False)
        for layer in self.layers:
            packed, _ = layer(packed)
        hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=frames.shape[1])
        mels: Tensor = self.output(at_frames(hidden, lengths, wanted))
        return mels

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """The absolute error of log mel magnitudes against the audio's own, summed; the count is their number."""
        magnitudes = self.spectrum.analyze(batch.audio.float()).abs()
        wanted = (magnitudes @ mel_filters(self.bins, self.spectrum.frequencies, magnitudes)).clamp(min=FLOOR).log()
        found = self(frames.to(self.output.weight.dtype), lengths, wanted.shape[1]).float()
        counts = self.spectrum.frames(batch.lengths)
        own = within(counts, wanted.shape[1])[..., None]
        return Loss(((found - wanted).abs() * own).sum(), counts.sum() * self.bins)

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> WaveformScorer:
        """Audio whose mel spectrum is the predicted one."""
        counts = self.spectrum.frames(batch.lengths)
        mels = as_precise(self, frames)(frames, lengths, int(counts.max())).to(spectral_dtype(frames)).exp()
        filters = mel_filters(self.bins, self.spectrum.frequencies, mels)
        # Between mel bins as they overlap: an exact inverse blows up errors in bins that hardly any frequency is in.
        between = (filters / filters.sum(1, keepdim=True).clamp(min=SMALLEST)).T  # (M, K)
        magnitudes = mels @ between * within(counts, mels.shape[1])[..., None]
        return WaveformScorer(self._griffin_lim(magnitudes, batch.lengths).float(), batch.lengths)

    def _griffin_lim(self, magnitudes: Tensor, lengths: Tensor) -> Tensor:
        """Audio (B, T) whose spectrum has nearly these magnitudes, from a phase of zero ("Griffin and Lim, 1984")."""
        size = int(lengths.max())
        own = within(lengths, size)
        audio = self.spectrum.synthesize(magnitudes + 0j, size) * own
        for _ in range(self.iterations):
            spectrum = self.spectrum.analyze(audio)[:, : magnitudes.shape[1]]
            phase = spectrum / spectrum.abs().clamp(min=1e-12)
            audio = self.spectrum.synthesize(magnitudes * phase, size) * own
        return audio


def mel_filters(bins: int, frequencies: int, like: Tensor) -> Tensor:
    """Triangles on the mel scale (K, M), each with a sum of 1 over its width."""
    highest = 2595 * math.log10(1 + SAMPLE_RATE / 2 / 700)
    mels = torch.linspace(0, highest, bins + 2, dtype=torch.float64)
    edges = 700 * (10 ** (mels / 2595) - 1)
    hertz = torch.linspace(0, SAMPLE_RATE / 2, frequencies, dtype=torch.float64)[:, None]
    rise = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    filters = torch.minimum(rise, fall).clamp(min=0)
    return (filters / filters.sum(0).clamp(min=1e-3)).to(like.device, like.dtype)

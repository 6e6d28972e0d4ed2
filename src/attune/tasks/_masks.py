"""Enhancement and separation by masks on the spectrum, as in SUPERB: encoder frames → LSTM layers → a mask per source.

The spectrum has a frame for each of the encoder's: its hop is the encoder's stride. Masks learn the non-negative
phase-sensitive spectrum of each source, and the phase of the input is kept.
"""

# B batch, T samples, F frames, D width, K frequencies, S sources
from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attune.audio.features import within
from attune.errors import ModelError
from attune.scorers import ScorerKind, WaveformScorer
from attune.tasks._mask_settings import MaskHeadConfig
from attune.tasks._precision import as_precise, spectral_dtype
from attune.tasks._spectrum import SMALLEST, ShortTimeSpectrum, at_frames
from attune.types import Batch, Loss


@dataclass(frozen=True, slots=True)
class SourceSignals:
    """The clean signals that are to be found in an utterance."""

    samples: Tensor  # (S, T)


class MaskHead(nn.Module):
    """The signals in a mixture."""

    scorer_kind: ScorerKind = "waveform"

    def __init__(self, width_in: int, stride: int, sources: int, settings: MaskHeadConfig) -> None:
        super().__init__()
        self.sources = sources
        self.spectrum = ShortTimeSpectrum.of_hop(stride)
        self.layers = nn.ModuleList(
            nn.LSTM(width_in if layer == 0 else 2 * settings.width, settings.width, bidirectional=True)
            for layer in range(settings.layers)
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Linear(2 * settings.width, sources * self.spectrum.frequencies)

    def forward(self, frames: Tensor, lengths: Tensor, wanted: int) -> Tensor:
        """Masks (B, S, F, K) between 0 and 1 for so many frames of the spectrum."""
        packed = pack_padded_sequence(frames, lengths.cpu(), batch_first=True, enforce_sorted=False)
        for layer in self.layers:
            packed, _ = layer(packed)
            packed = packed._replace(data=self.dropout(packed.data))
        hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=frames.shape[1])
        masks: Tensor = self.output(at_frames(hidden, lengths, wanted)).sigmoid()
        return masks.view(*masks.shape[:2], self.sources, -1).transpose(1, 2)

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """The squared error of masked magnitudes under the best order of sources, summed; the count is their number."""
        mixed = self.spectrum.analyze(batch.audio.float())  # (B, F, K)
        magnitude = mixed.abs()[:, None]
        wanted = self._phase_sensitive(mixed, batch)
        masks = self(frames.to(self.output.weight.dtype), lengths, mixed.shape[1]).float()
        counts = self.spectrum.frames(batch.lengths)
        own = within(counts, mixed.shape[1])[:, None, :, None]
        errors = [
            ((masks[:, list(order)] * magnitude - wanted).square() * own).sum((1, 2, 3))
            for order in permutations(range(self.sources))
        ]
        return Loss(torch.stack(errors).amin(0).sum(), counts.sum() * self.spectrum.frequencies * self.sources)

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> WaveformScorer:
        """The masked input, each source back in time."""
        audio = batch.audio.to(spectral_dtype(frames))
        mixed = self.spectrum.analyze(audio)
        masks = as_precise(self, frames)(frames, lengths, mixed.shape[1]).to(audio.dtype)
        found = self.spectrum.synthesize((masks * mixed[:, None]).flatten(0, 1), audio.shape[1])
        found = found.view(*masks.shape[:2], -1) * within(batch.lengths, audio.shape[1])[:, None]
        return WaveformScorer((found[:, 0] if self.sources == 1 else found).float(), batch.lengths)

    def _phase_sensitive(self, mixed: Tensor, batch: Batch) -> Tensor:
        """What of each source has the phase of the mixture (B, S, F, K), between nothing and all of the mixture."""
        if not isinstance(batch.targets, SourceSignals):
            raise ModelError(f"This head needs signals as targets; the task gives {type(batch.targets).__name__}.")
        size, clean = batch.audio.shape[1], batch.targets.samples.float()
        clean = F.pad(clean[..., :size], (0, max(0, size - clean.shape[-1])))  # (B, S, T)
        sources = self.spectrum.analyze(clean.flatten(0, 1)).view(*clean.shape[:2], *mixed.shape[1:])
        magnitude = mixed.abs()
        phase = mixed / magnitude.clamp(min=SMALLEST)
        return torch.minimum((sources * phase.conj()[:, None]).real.clamp(min=0), magnitude[:, None])

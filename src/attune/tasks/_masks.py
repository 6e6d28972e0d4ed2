"""Enhancement and separation by masks on the spectrum, as in SUPERB: encoder frames → LSTM layers → a mask per source.

The spectrum has a frame for each of the encoder's: its hop is the encoder's stride. Masks learn the non-negative
phase-sensitive spectrum of each source, and the phase of the input is kept. What lies beyond an utterance is zero, so
that an utterance comes out the same in any batch.
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
from attune.tasks._precision import as_precise
from attune.types import Batch, Loss

WINDOW = 512


@dataclass(frozen=True, slots=True)
class SourceSignals:
    """The clean signals that are to be found in an utterance."""

    samples: Tensor  # (S, T)


class MaskHead(nn.Module):
    """The signals in a mixture."""

    scorer_kind: ScorerKind = "waveform"

    def __init__(self, width_in: int, stride: int, sources: int, settings: MaskHeadConfig) -> None:
        super().__init__()
        self.hop, self.sources = stride, sources
        # A hop of more than two thirds of the window would leave samples that no frame sees well.
        self.window = WINDOW if 3 * stride <= 2 * WINDOW else 2 ** (2 * stride - 1).bit_length()
        self.layers = nn.ModuleList(
            nn.LSTM(width_in if layer == 0 else 2 * settings.width, settings.width, bidirectional=True)
            for layer in range(settings.layers)
        )
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Linear(2 * settings.width, sources * (self.window // 2 + 1))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Masks (B, S, F, K) between 0 and 1."""
        packed = pack_padded_sequence(frames, lengths.cpu(), batch_first=True, enforce_sorted=False)
        for layer in self.layers:
            packed, _ = layer(packed)
            packed = packed._replace(data=self.dropout(packed.data))
        hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=frames.shape[1])
        masks: Tensor = self.output(hidden).unflatten(2, (self.sources, -1)).transpose(1, 2).sigmoid()
        return masks

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """The squared error of masked magnitudes under the best order of sources, summed; the count is their number."""
        if not isinstance(batch.targets, SourceSignals):
            raise ModelError(f"This head learns signals, and its task gives {type(batch.targets).__name__}.")
        audio = batch.audio.float()
        clean = _as_long_as(batch.targets.samples.float(), audio.shape[1])  # (B, S, T)
        mixed = self.spectrum(audio)  # (B, F', K)
        sources = self.spectrum(clean.flatten(0, 1)).unflatten(0, clean.shape[:2])  # (B, S, F', K)
        magnitude = mixed.abs()
        wanted = (sources * (mixed / magnitude.clamp(min=1e-8)).conj()[:, None]).real.clamp(min=0)
        wanted = torch.minimum(wanted, magnitude[:, None])
        own = within(self.spectrum_lengths(batch.lengths), mixed.shape[1])[:, None, :, None]
        masks = self._at_spectrum(self(frames.to(self.output.weight.dtype), lengths).float(), lengths, mixed.shape[1])
        found = masks * magnitude[:, None]
        orders = permutations(range(self.sources))
        errors = [((found[:, list(order)] - wanted).square() * own).sum((1, 2, 3)) for order in orders]
        count = self.spectrum_lengths(batch.lengths).sum() * mixed.shape[2] * self.sources
        return Loss(torch.stack(errors).amin(0).sum(), count)

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> WaveformScorer:
        """The masked input, each source back in time."""
        audio = batch.audio.to(frames.dtype)
        mixed = self.spectrum(audio)
        masks = self._at_spectrum(as_precise(self, frames)(frames, lengths), lengths, mixed.shape[1])
        found = self.waveform((masks * mixed[:, None]).flatten(0, 1), audio.shape[1]).unflatten(0, masks.shape[:2])
        found = (found * within(batch.lengths, audio.shape[1])[:, None]).float()
        return WaveformScorer(found[:, 0] if self.sources == 1 else found, batch.lengths)

    def spectrum(self, audio: Tensor) -> Tensor:
        """The short-time spectrum (B, F', K), a frame centered at each multiple of the hop, to the end of the audio."""
        last = (audio.shape[1] + self.window // 2) // self.hop  # the last frame that any sample is in
        padded = F.pad(audio, (self.window // 2, max(0, last * self.hop + self.window // 2 - audio.shape[1])))
        return torch.fft.rfft(padded.unfold(1, self.window, self.hop)[:, : last + 1] * self._window(audio))

    def waveform(self, spectrum: Tensor, samples: int) -> Tensor:
        """Audio (B, T) from a spectrum: the inverse of `spectrum`."""
        pieces = torch.fft.irfft(spectrum, self.window) * self._window(spectrum.real)  # (B, F', window)
        size = (pieces.shape[1] - 1) * self.hop + self.window
        summed = _overlap_add(pieces, size, self.hop)
        weights = _overlap_add(self._window(spectrum.real).square().expand(1, pieces.shape[1], -1), size, self.hop)
        half = self.window // 2
        found: Tensor = (summed / weights.clamp(min=1e-8))[:, half : half + samples]
        return found

    def spectrum_lengths(self, samples: Tensor) -> Tensor:
        """How many frames of the spectrum an utterance has a part in."""
        return (samples + self.window // 2) // self.hop + 1

    def _window(self, like: Tensor) -> Tensor:
        return torch.hann_window(self.window, dtype=like.dtype, device=like.device)

    def _at_spectrum(self, masks: Tensor, lengths: Tensor, frames: int) -> Tensor:
        """A mask for every frame of the spectrum; after the encoder's last frame, that one's."""
        here = torch.arange(frames, device=masks.device)[None].minimum((lengths - 1)[:, None])  # (B, F')
        index = here[:, None, :, None].expand(-1, masks.shape[1], -1, masks.shape[3])
        return masks.gather(2, index)


def _overlap_add(pieces: Tensor, size: int, hop: int) -> Tensor:
    columns = pieces.transpose(1, 2)  # (B, window, F')
    folded = F.fold(columns, (1, size), (1, pieces.shape[2]), stride=(1, hop))
    return folded[:, 0, 0]


def _as_long_as(signals: Tensor, samples: int) -> Tensor:
    return F.pad(signals[..., :samples], (0, max(0, samples - signals.shape[-1])))

"""Short-time spectra and back, the same for an utterance in any batch: what lies beyond its end is zero."""

# B batch, T samples, F frames, K frequencies
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

WINDOW = 512
SMALLEST = 1e-8


@dataclass(frozen=True, slots=True)
class ShortTimeSpectrum:
    """Frames of `window` samples, centered at the multiples of `hop`, to the end of the audio."""

    hop: int
    window: int

    @classmethod
    def of_hop(cls, hop: int) -> "ShortTimeSpectrum":
        """With 512 samples a frame, or more: a hop of above two thirds leaves samples that no frame sees well."""
        return cls(hop, WINDOW if 3 * hop <= 2 * WINDOW else 2 ** (2 * hop - 1).bit_length())

    @property
    def frequencies(self) -> int:
        """How many frequencies there are."""
        return self.window // 2 + 1

    def frames(self, samples: Tensor) -> Tensor:
        """How many frames have a part of an utterance (B,)."""
        return (samples + self.window // 2) // self.hop + 1

    def analyze(self, audio: Tensor) -> Tensor:
        """The spectrum (B, F, K) of audio (B, T)."""
        last = (audio.shape[1] + self.window // 2) // self.hop
        padded = F.pad(audio, (self.window // 2, max(0, last * self.hop + self.window // 2 - audio.shape[1])))
        frames: Tensor = padded.unfold(1, self.window, self.hop)[:, : last + 1]
        spectrum: Tensor = torch.fft.rfft(frames * self._shape(audio))
        return spectrum

    def synthesize(self, spectrum: Tensor, samples: int) -> Tensor:
        """The audio (B, T) of a spectrum: of an unchanged one, what it was made from."""
        shape = self._shape(spectrum.real)
        pieces = torch.fft.irfft(spectrum, self.window) * shape  # (B, F, window)
        weights = self._overlap_add(shape.square().expand(1, pieces.shape[1], -1))
        half = self.window // 2
        found: Tensor = (self._overlap_add(pieces) / weights.clamp(min=SMALLEST))[:, half : half + samples]
        return found

    def _shape(self, like: Tensor) -> Tensor:
        return torch.hann_window(self.window, dtype=like.dtype, device=like.device)

    def _overlap_add(self, pieces: Tensor) -> Tensor:
        size = (pieces.shape[1] - 1) * self.hop + self.window
        return F.fold(pieces.transpose(1, 2), (1, size), (1, self.window), stride=(1, self.hop))[:, 0, 0]


def at_frames(values: Tensor, lengths: Tensor, frames: int) -> Tensor:
    """Values (B, F, D) of an encoder for so many frames of a spectrum; after a row's last frame, that one's."""
    here = torch.arange(frames, device=values.device)[None].minimum((lengths - 1)[:, None])
    return values.gather(1, here[..., None].expand(-1, -1, values.shape[2]))

"""An upstream ready to use in Python: recordings in, the features of all layers out."""

# B batch, L layers, F frames, D width
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attune.batches.collate import pad
from attune.errors import DataError
from attune.families.ssl.upstream import Upstream
from attune.types import SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class FeatureExtractor:
    """Features of recordings, each what it would be alone."""

    upstream: Upstream
    device: torch.device

    @property
    def stride(self) -> int:
        """Samples (at 16 kHz) from one frame to the next."""
        return self.upstream.stride

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each layer, the one nearest the input first."""
        return self.upstream.widths

    def layers(self, recordings: Sequence[NDArray[np.float32]], batch: int = 8) -> list[list[Tensor]]:
        """All layers (F, D) of each recording: mono samples at 16 kHz, `batch` of them computed at a time."""
        return [found for start in range(0, len(recordings), batch) for found in self._of(recordings[start:][:batch])]

    def _of(self, recordings: Sequence[NDArray[np.float32]]) -> list[list[Tensor]]:
        self._require_usable(recordings)
        audio = pad([torch.from_numpy(np.ascontiguousarray(each, np.float32)) for each in recordings])
        lengths = torch.tensor([len(each) for each in recordings])
        with torch.inference_mode():
            layers, counts = self.upstream(audio.to(self.device), lengths.to(self.device))
            found = [layer.cpu() for layer in layers]
        return [[layer[row, :count] for layer in found] for row, count in enumerate(counts.tolist())]

    def _require_usable(self, recordings: Sequence[NDArray[np.float32]]) -> None:
        longest = self.upstream.max_seconds
        for number, each in enumerate(recordings):
            if not isinstance(each, np.ndarray) or each.dtype.kind != "f":
                raise DataError(
                    f"Recording {number} is no array of floats from -1 to 1. Read a file with attune.load_audio."
                )
            if each.ndim != 1 or not len(each):
                raise DataError(f"Recording {number} has the shape {each.shape}; expected mono audio, not empty.")
            if longest is not None and len(each) > longest * SAMPLE_RATE:
                seconds = len(each) / SAMPLE_RATE
                raise DataError(
                    f"Recording {number} is {seconds:.1f} s long; this upstream takes {longest:g} s. Split it."
                )


def ready(upstream: Upstream, device: torch.device) -> FeatureExtractor:
    """The upstream as it is used: without dropout, on a device."""
    cast(nn.Module, upstream).eval().to(device)
    return FeatureExtractor(upstream, device)

"""Features of a frozen upstream in the memory of the device that a head learns on: read once, and not copied again."""

# B batch, L layers, F frames, D width
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class HeldFeatures:
    """The features of some utterances, by name. What is there stays: an order that is new in each epoch visits all."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._rows: dict[str, Tensor] = {}  # (F, L, D)
        self._bytes = 0

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __getstate__(self) -> dict[str, Any]:
        return {"most_bytes": self.most_bytes, "_rows": {}, "_bytes": 0}  # of a device that other processes lack

    def add(self, keys: Sequence[str], layers: Sequence[Tensor], counts: Tensor) -> None:
        """Keep the layers (B, F, D) of those rows for which there is room."""
        if self._bytes >= self.most_bytes or all(key in self._rows for key in keys):
            return
        for place, (key, count) in enumerate(zip(keys, counts.tolist(), strict=True)):
            size = count * sum(layer.shape[2] * layer.itemsize for layer in layers)
            if key not in self._rows and self._bytes + size <= self.most_bytes:
                self._rows[key] = torch.stack([layer[place, :count] for layer in layers], dim=1)
                self._bytes += size

    def layers(self, keys: Sequence[str]) -> tuple[Tensor, ...]:
        """The layers (B, F, D), with zeros beyond the own frames of each row."""
        rows = [self._rows[key] for key in keys]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).unbind(2)

    def clear(self) -> None:
        """Forget all, as other weights compute other features."""
        self._rows, self._bytes = {}, 0

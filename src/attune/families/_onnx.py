"""What a family gives to the ONNX exporter: modules with named inputs and outputs, one for each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attune.types import SAMPLE_RATE, Batch, TokenTargets

Axes = Mapping[int, Any] | None  # of one input: those whose size may change


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """One file: a module, an example of each of its inputs, and the inputs' axes whose size may change."""

    name: str
    module: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    dynamic: Mapping[str, int]  # an axis each; other inputs keep the size of the example
    plain: int | None = None  # how many inputs have a parameter of their own; the rest share one, *inputs

    def nested(self, values: tuple[Axes, ...]) -> tuple[Axes | tuple[Axes, ...], ...]:
        """A value for each input, as the module's parameters are."""
        return values if self.plain is None else (*values[: self.plain], values[self.plain :])


def example_audio(seconds: float = 3.0) -> Tensor:
    """Samples to trace a graph with (1, T)."""
    return 0.1 * torch.randn(1, round(seconds * SAMPLE_RATE), generator=torch.Generator().manual_seed(0))


def batch_of_one(audio: Tensor) -> Batch:
    """The batch of one utterance (1, T) without padding."""
    lengths = audio.new_full((1,), audio.shape[1]).long()
    none = TokenTargets(lengths.new_zeros((1, 0)), lengths.new_zeros(1))
    return Batch(ids=("",), audio=audio, lengths=lengths, targets=none)

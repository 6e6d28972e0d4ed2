"""What an upstream is: an encoder of audio with layers, whose features a task's head learns from.

`families/ssl/upstreams/NAME.py` exports one as UPSTREAM, in or out of the package.
"""

# B batch, F frames, D width
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from attune.catalog import Kind

if TYPE_CHECKING:  # upstreams are listed and configured without loading torch
    from torch import Tensor

    from attune.types import Masks


class Upstream(Protocol):
    """An `nn.Module` that reads every row of a batch up to its own length only."""

    stride: int  # samples from one frame to the next
    widths: tuple[int, ...]  # of each layer, the one nearest the input first
    applies_masks: bool  # whether it hides what `masks` says by itself
    max_seconds: float | None  # the longest recording that it takes

    def __call__(self, audio: Tensor, lengths: Tensor, masks: Masks | None = None) -> tuple[Iterable[Tensor], Tensor]:
        """The layers (B, F, D), and how many frames are each row's own (B,).

        Layers may be computed as they are asked for: what nobody asks for is never computed.
        """

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""


@dataclass(frozen=True, slots=True)
class UpstreamType:
    """What `upstreams/NAME.py` exports as UPSTREAM.

    `build(assets)` makes the upstream with random weights. `read(path, assets)` reads a checkpoint that others wrote:
    it writes what `build` must know to the folder `assets` and returns the weights under the upstream's own names.
    Without `read`, an upstream has no weights to start from.
    """

    build: Callable[[Path], Upstream]
    read: Callable[[Path, Path], Mapping[str, Tensor]] | None = None


UPSTREAMS: Kind[UpstreamType] = Kind("families.ssl.upstreams", "UPSTREAM")

"""How much of an encoder's 30 s window an utterance needs.

`full` is OpenAI's computation: every utterance is ended with silence up to 30 s. `trimmed` gives each utterance a
window of its own, a function of its own length: whole seconds, and never fewer than FLOOR_SECONDS. The batch is as wide
as its widest window; what lies beyond an utterance's own is zero to the convolutions and hidden from attention, so an
utterance is computed as if it were alone.
"""

# B batch, F encoder frames
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attune.audio.features import within
from attune.types import SAMPLE_RATE

FLOOR_SECONDS = 5
FRAMES_PER_SECOND = 50  # of the encoder; there are twice as many mel frames

Window = Literal["full", "trimmed"]


def attention_kernels(plans: bool, device: torch.device) -> AbstractContextManager[object]:
    """The context in which attention takes the kernels that are quickest in all.

    cuDNN's are, twice as quick as others with a mask; but it plans for every new shape, which takes some tenths of a
    second. That pays for the one shape of full windows, and in the training of a model that is not small.
    """
    if device.type != "cuda":
        return nullcontext()
    kinds = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, *kinds] if plans else kinds, set_priority=True)


@dataclass(frozen=True, slots=True)
class Windows:
    """The encoder frames of a batch, and how many of them are each row's own; None: all of them."""

    kind: Window
    width: int
    own: Tensor | None  # (B,)

    def clear(self, mels: Tensor) -> Tensor:
        """Log-mel energies (B, M, 2 F) with zeros beyond the own window."""
        return mels if self.own is None else mels * within(2 * self.own, 2 * self.width)[:, None]

    def mask(self) -> Tensor | None:
        """What attention may see (B, 1, 1, F)."""
        return None if self.own is None else within(self.own, self.width)[:, None, None]


def windows_of(window: Window, lengths: Tensor, samples: int, positions: int) -> Windows:
    """The windows of utterances of these lengths (B,), padded to `samples`."""
    if window == "full":
        return Windows(window, positions, None)
    width = own_frames(window, samples, positions)
    seconds = (-(-lengths // SAMPLE_RATE)).clamp(min=FLOOR_SECONDS)
    own = (seconds * FRAMES_PER_SECOND).clamp(max=positions)
    # Every window is the narrowest there is: nothing to hide.
    is_floor = width <= FLOOR_SECONDS * FRAMES_PER_SECOND
    return Windows(window, width, None if is_floor else own)


def own_frames(window: Window, samples: int, positions: int) -> int:
    """The encoder frames of one utterance of so many samples."""
    if window == "full":
        return positions
    return min(positions, max(FLOOR_SECONDS, -(-samples // SAMPLE_RATE)) * FRAMES_PER_SECOND)

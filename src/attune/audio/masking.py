"""SpecAugment (arXiv 1904.08779) on a batch of features: each row is masked by its own seed and its own length.

Masks do not depend on the rest of the batch or on padding; the same seed gives the same masks.
"""

# B batch, F frames, D features, M masks
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attune.audio.settings import MasksConfig
from attune.seeds import derive
from attune.types import Masks


def draw_masks(seeds: Iterable[int], settings: MasksConfig) -> Masks:
    """The masks of a batch; row i is a function of the i-th seed."""
    return Masks(torch.from_numpy(np.stack([_draw(seed, settings) for seed in seeds])), settings)


def mask_features(features: Tensor, lengths: Tensor, masks: Masks) -> Tensor:
    """Zero the time and frequency masks in features (B, F, D)."""
    hidden_times, hidden_bins = hidden_parts(features, lengths, masks)
    return features.masked_fill(hidden_times[:, :, None] | hidden_bins[:, None, :], 0)


def hidden_parts(features: Tensor, lengths: Tensor, masks: Masks) -> tuple[Tensor, Tensor]:
    """Which frames (B, F) and which bins (B, D) of features (B, F, D) are masked."""
    settings: MasksConfig = masks.settings
    counts = [settings.time_masks, settings.frequency_masks]
    in_time, in_frequency = torch.split(masks.draws, counts, dim=1)  # (B, M, 2)
    frames, bins = features.shape[1:]
    hidden_times = _covered(in_time, lengths, lengths * settings.time_part, frames)
    widths = torch.full_like(lengths, bins)
    return hidden_times, _covered(in_frequency, widths, widths.clamp(max=settings.frequency_bins), bins)


def _draw(seed: int, settings: MasksConfig) -> NDArray[np.float32]:
    """Two numbers in [0, 1) for each mask: width and position."""
    generator = np.random.Generator(np.random.Philox(derive(seed, "masks")))
    return generator.random((settings.time_masks + settings.frequency_masks, 2), dtype=np.float32)


def _covered(draws: Tensor, own: Tensor, widest: Tensor, size: int) -> Tensor:
    """Which of `size` positions are masked (B, size); masks lie within the row's `own` length."""
    own, widest = own.view(-1, 1), widest.view(-1, 1)
    widths = (draws[..., 0] * (widest.floor() + 1)).floor()  # 0 to widest, each as likely
    starts = (draws[..., 1] * (own - widths + 1)).floor()
    here = torch.arange(size, device=draws.device)
    covered = (here >= starts[..., None]) & (here < (starts + widths)[..., None])  # (B, M, size)
    return covered.any(dim=1)

"""Sinusoidal positions that encoders and decoders have in common, and scores by distance as scores by place."""

# B batch, H heads, F frames, D width, N places
import math

import torch
import torch.nn.functional as F
from torch import Tensor


def sinusoids(places: Tensor, width: int) -> Tensor:
    """Sines and cosines by turns (N, D) of these places (N,)."""
    rates = torch.exp(
        torch.arange(0, width, 2, dtype=torch.float32, device=places.device) * -(math.log(10_000) / width)
    )
    angles = places[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


def relative_sinusoids(frames: int, width: int, device: torch.device) -> Tensor:
    """Relative positions (1, 2 F - 1, D), from what is farthest before to what is farthest after."""
    return sinusoids(torch.arange(frames - 1, -frames, -1, dtype=torch.float32, device=device), width)[None]


def by_place(scores: Tensor) -> Tensor:
    """Scores by distance (B, H, F, 2 F - 1) as scores by place (B, H, F, F)."""
    rows, heads, frames, places = scores.shape
    padded = F.pad(scores, (1, 0)).view(rows, heads, places + 1, frames)
    return padded[:, :, 1:].reshape(rows, heads, frames, places)[..., :frames]

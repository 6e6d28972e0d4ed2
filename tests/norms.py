"""Frames to normalize, and how far two ways to do it are apart."""

from types import ModuleType

import torch
from torch import Tensor


def norm_case(dtype: torch.dtype, device: str = "cpu", frames: int = 701) -> tuple[Tensor, ...]:
    """Frames beyond the own ones that are far off, and a gradient there too; more frames than a block has."""
    random = torch.Generator().manual_seed(3)
    lengths = torch.tensor([frames, 5, frames // 2, 1, frames - 1])
    beyond = (torch.arange(frames) >= lengths[:, None])[:, None]
    values = torch.randn(5, 7, frames, generator=random) * torch.arange(1, 8)[:, None] + 20
    values = values.masked_fill(beyond, 9e3).to(dtype)
    gradient = torch.randn(5, 7, frames, generator=random).to(dtype)
    weight, bias, center = torch.randn(3, 7, generator=random)
    found = (gradient, values, beyond, lengths.sum(), weight, bias, center)
    return tuple(each.to(device) for each in found)


def distances(ours: ModuleType, theirs: ModuleType, case: tuple[Tensor, ...]) -> dict[str, float]:
    """The largest difference of each result, relative to the largest value of theirs, which compute in float64."""
    gradient, values, beyond, count, weight, bias, center = case
    results = []
    for by, wide in ((ours, lambda each: each), (theirs, lambda each: each.double())):
        normed, found, sums = by.forward(wide(values), beyond, count, wide(weight), wide(bias), wide(center), 1e-3)
        gradients = by.backward(wide(gradient), wide(values), beyond, count, wide(weight), *found)
        results.append([normed, *found, sums, *gradients])
    names = ("normed", "mean", "rate", "sums", "frames", "weight", "bias")
    pairs = zip(names, *results, strict=True)
    return {name: float((one.double() - other).abs().max() / other.abs().max()) for name, one, other in pairs}

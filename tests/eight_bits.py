"""Steps of 8-bit AdamW by Triton's kernel, and how far they are off plain torch's."""

from unittest.mock import patch

import torch
from torch import nn

from attune.training import adam8

LR, STEPS = 1e-2, 6


def distances(device: str = "cpu") -> dict[str, float]:
    """The largest differences of one step from the same memory: of weights in learning rates, scales, and codes."""
    found = {"weights": 0.0, "scales": 0.0, "codes": 0.0}
    plain, fused = (nn.Parameter(torch.linspace(-1, 1, 5917, device=device).sin().view(97, 61)) for _ in range(2))
    optimizers = [adam8.Adam8([each], LR, (0.9, 0.98), weight_decay=0.1) for each in (plain, fused)]
    for step in range(STEPS):
        fused.data.copy_(plain)
        optimizers[1].state[fused] = {name: value.clone() for name, value in optimizers[0].state[plain].items()}
        plain.grad = fused.grad = _gradient(step).to(device)
        for optimizer, by_triton in zip(optimizers, (False, True), strict=True):
            with patch.object(adam8, "_fits_triton", return_value=by_triton):
                optimizer.step()
        one, other = (optimizer.state[each] for optimizer, each in zip(optimizers, (plain, fused), strict=True))
        found["weights"] = max(found["weights"], _largest(plain.detach(), fused.detach()) / LR)
        for name in ("mean", "root"):
            scale = one[f"{name}_scale"]
            found["scales"] = max(found["scales"], _largest(scale, other[f"{name}_scale"]) / float(scale.max()))
            found["codes"] = max(found["codes"], _largest(one[name].int(), other[name].int()))
    return found


def _gradient(step: int) -> torch.Tensor:
    """Small and large in turn, and nothing at all in a whole block."""
    random = torch.Generator().manual_seed(step)
    gradient = torch.randn(5917, generator=random) * 10.0 ** (torch.randn(5917, generator=random) * 2 - 3)
    gradient[256:512] = 0
    return gradient.view(97, 61)


def _largest(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())

"""A frozen upstream: no dropout, no gradient, and in half precision from a copy of its weights that is made once."""

# B batch, F frames, D width
import copy
from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

from attune.families.ssl.upstream import Upstream


def is_frozen(upstream: Upstream) -> bool:
    """Whether nothing in it learns."""
    return not any(weight.requires_grad for weight in cast(nn.Module, upstream).parameters())


class FrozenUpstream:
    """Runs upstreams that do not learn.

    Autocast would narrow every weight again in each step, and keep what lies between the layers in float32. So where it
    is on, a narrow copy of the upstream computes; it is made anew should the weights have changed.
    """

    def __init__(self) -> None:
        self._narrow: nn.Module | None = None
        self._made_from: tuple[object, ...] = ()

    def __call__(self, upstream: Upstream, audio: Tensor, lengths: Tensor) -> tuple[Iterable[Tensor], Tensor]:
        """The layers (B, F, D), each computed when it is asked for, and how many frames are each row's own."""
        module, kind = cast(nn.Module, upstream), audio.device.type
        if module.training:
            module.eval()
        weights = list(module.parameters())
        if weights and torch.is_autocast_enabled(kind):
            module = self._copy(module, weights, torch.get_autocast_dtype(kind))
        with torch.no_grad(), torch.autocast(kind, enabled=False):
            layers, counts = module(audio, lengths)
        return _plainly(layers, kind), counts

    def __deepcopy__(self, memo: dict[int, object]) -> "FrozenUpstream":
        return FrozenUpstream()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return FrozenUpstream, ()

    def _copy(self, module: nn.Module, weights: list[nn.Parameter], dtype: torch.dtype) -> nn.Module:
        state = (dtype, weights[0].device, id(module), sum(weight._version for weight in weights))
        if self._narrow is None or self._made_from != state:
            self._narrow, self._made_from = copy.deepcopy(module).to(dtype), state
        return self._narrow


def _plainly(layers: Iterable[Tensor], kind: str) -> Iterator[Tensor]:
    """Each next layer, computed without a gradient and without autocast."""
    steps = iter(layers)
    while True:
        with torch.no_grad(), torch.autocast(kind, enabled=False):
            layer = next(steps, None)
        if layer is None:
            return
        yield layer

"""A frozen upstream: no dropout, no gradient, and in half precision from a copy of its weights that is made once."""

# B batch, F frames, D width
import copy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Self, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from attune.families.ssl.featurizer import LayerFeaturizer
from attune.families.ssl.upstream import Upstream


def is_frozen(upstream: Upstream) -> bool:
    """Whether nothing in it learns."""
    return not any(weight.requires_grad for weight in cast(nn.Module, upstream).parameters())


class FrozenUpstream:
    """Runs an upstream that does not learn.

    Autocast would narrow every weight again in each step, and keep what lies between the layers in float32. So where it
    is on, a narrow copy of the upstream computes; it is made anew should the weights have changed.
    """

    def __init__(self, upstream: Upstream, featurizer: LayerFeaturizer) -> None:
        self.upstream = upstream
        self.featurizer = featurizer
        self._narrow: nn.Module | None = None
        self._made_from: tuple[object, ...] = ()

    def __call__(
        self, audio: Tensor, lengths: Tensor, dtype: torch.dtype | None = None
    ) -> tuple[Iterable[Tensor], Tensor]:
        """The layers (B, F, D), each computed when it is asked for, and how many frames are each row's own.

        In `dtype` or, where none is given, in what autocast says.
        """
        module, kind = cast(nn.Module, self.upstream), audio.device.type
        if module.training:
            module.eval()
        if dtype is None and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        weights = list(module.parameters())
        if any(isinstance(weight, DTensor) for weight in weights):
            # Ranks that share the weights bring them together layer by layer; there is nothing whole to copy.
            plainly = partial(torch.autocast, kind, dtype, enabled=dtype not in (None, torch.float32))
        else:
            module = self._copy(module, dtype) if weights and dtype not in (None, weights[0].dtype) else module
            plainly = partial(torch.autocast, kind, enabled=False)
        with torch.no_grad(), plainly():
            layers, counts = module(audio, lengths)
        return _plainly(layers, plainly), counts

    def version(self) -> tuple[object, ...]:
        """Changes whenever weights of the upstream do."""
        weights = list(cast(nn.Module, self.upstream).state_dict(keep_vars=True).values())
        return (id(self.upstream), *(weights[0].device for _ in weights[:1]), sum(each._version for each in weights))

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        found = type(self)(copy.deepcopy(self.upstream, memo), copy.deepcopy(self.featurizer, memo))
        memo[id(self)] = found
        return found

    def _copy(self, module: nn.Module, dtype: torch.dtype | None) -> nn.Module:
        state = (dtype, *self.version())
        if self._narrow is None or self._made_from != state:
            self._narrow, self._made_from = copy.deepcopy(module).to(dtype), state
            for old, new in zip(module.modules(), self._narrow.modules(), strict=True):
                if old._compiled_call_impl is not None:  # a copy is not compiled, as train.compile asks for
                    new.compile(dynamic=True)
        return self._narrow


def _plainly(layers: Iterable[Tensor], plainly: Callable[[], torch.autocast]) -> Iterator[Tensor]:
    """Each next layer, computed without a gradient and in this context."""
    steps = iter(layers)
    while True:
        with torch.no_grad(), plainly():
            layer = next(steps, None)
        if layer is None:
            return
        yield layer

"""A step of training on tensors that have shapes and no memory, and the bytes that it would have taken.

While `MemoryWalk` is entered, an operation with a large result only makes a tensor of that shape, type and lifetime.
What is small is computed, because models look at lengths. Autocast, autograd and gradient checkpointing work as they
do, so what they keep for the backward pass is counted for as long as they keep it.
"""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_iter, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

LARGE = 1 << 16  # elements; what has fewer is computed
PLACE = torch.device("cpu")  # what the tensors without memory say that they are on


class MemoryWalk(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that are alive: `now`, and `peak`, the most so far."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._fake = FakeTensorMode()
        self._counted = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, for real or in shape only."""
        options = dict(kwargs or {})
        result = (
            self._shaped(func, args, options) if self._has_no_memory(func, args, options) else func(*args, **options)
        )
        for tensor in tree_iter(result):
            if isinstance(tensor, Tensor):
                self._count(tensor)
        return result

    def without_memory(self, tensor: Tensor) -> Tensor:
        """A tensor of the same shape and type that takes none."""
        made = FakeTensor(self._fake, torch.empty_like(tensor, device="meta"), PLACE)
        self._count(made)
        return made

    def _has_no_memory(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        if tree_any(lambda each: isinstance(each, FakeTensor), (args, options)):
            return True
        if not func._schema.returns or func._schema.is_mutable:
            return False
        try:
            shaped = self._on_shapes(func, args, options)
        except (DynamicOutputShapeException, DataDependentOutputException):  # the values are there
            return False
        return any(isinstance(each, Tensor) and each.numel() >= LARGE for each in tree_iter(shaped))

    def _shaped(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result of an operation in shape only; of one whose shape depends on values, that of zeros."""
        try:
            return self._on_shapes(func, args, options)
        except (DynamicOutputShapeException, DataDependentOutputException):
            arguments, named = tree_map_only(FakeTensor, _zeros, (args, options))
            return tree_map_only(Tensor, self._without_large_memory, func(*arguments, **named))

    def _on_shapes(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        arguments, named = tree_map_only(Tensor, self._shape, (args, options))
        with self._fake:
            return func(*arguments, **named)

    def _shape(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        return FakeTensor(self._fake, torch.empty_like(tensor, device="meta"), tensor.device)

    def _without_large_memory(self, tensor: Tensor) -> Tensor:
        return self.without_memory(tensor) if tensor.numel() >= LARGE else tensor

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._counted:
            return
        size = storage.nbytes()
        self._counted[storage] = weakref.finalize(storage, self._forget, size)
        self.now += size
        self.peak = max(self.peak, self.now)

    def _forget(self, size: int) -> None:
        self.now -= size


def _zeros(tensor: Tensor) -> Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


def strip_memory(model: nn.Module, walk: MemoryWalk) -> None:
    """Replace the parameters and buffers of a model by tensors without memory; those that are tied stay so."""
    made: dict[Tensor, Any] = {}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter not in made:
                made[parameter] = nn.Parameter(walk.without_memory(parameter.detach()), parameter.requires_grad)
            module.register_parameter(name, made[parameter])
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.device.type == "meta" or buffer.numel() >= LARGE:
                module._buffers[name] = walk.without_memory(buffer)

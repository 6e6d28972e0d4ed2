"""Models that are built without their memory: large tensors have a shape, and a record of what would fill them.

While `Deferred` is entered, an operation with a large result only makes a tensor on the meta device and is noted down,
with the state of the random numbers if it draws any. `value` then does for one tensor what was noted for it, and gives
the bits that the operation would have given. So a rank can fill its slice of a model of which it never has more than
one tensor; weights read from a file stay in the file until then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map_only

from attune.errors import ModelError

LARGE = 1 << 14  # elements
Operation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation, and the tensors without memory among its arguments as they were then."""

    operation: Operation
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    random: Tensor | None  # the state of the generator


@dataclass(frozen=True, slots=True)
class _Version:
    """A tensor without memory, after as many steps of its storage."""

    tensor: Tensor
    steps: int


@dataclass(slots=True)
class _Storage:
    """What fills the memory that a tensor and its views would have: first the whole of it, then in place."""

    steps: list[_Step] = field(default_factory=list)


class Deferred(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Entered while a model is built and its weights are loaded.

    Without `draws` the random numbers are not advanced: quick, for those who need shapes alone.
    """

    def __init__(self, draws: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._draws = draws
        self._storages: dict[int, _Storage] = {}
        self._alive: list[Tensor] = []  # a storage's address is its own as long as it lives

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, or note it down."""
        options = dict(kwargs or {})
        if tree_any(self._is_noted, (args, options)):
            return self._note_use(func, args, options)
        if func._schema.returns and not _aliases(func) and self._is_large(func, args, options):
            return self._note(func, args, options)
        return func(*args, **options)

    def tensors(self, model: nn.Module) -> "DeferredTensors":
        """The model's parameters and buffers by name, whether they have memory or not."""
        named = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
        return DeferredTensors(self, {name: each.detach() for name, each in named.items()})

    def value(self, tensor: Tensor) -> Tensor:
        """The tensor with its memory."""
        if not self._is_noted(tensor):
            return tensor
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            return self._value(_Version(tensor, len(self._storage(tensor).steps)))

    def _value(self, version: _Version) -> Tensor:
        noted = self._storage(version.tensor)
        if version.steps == 1 and noted.steps[0].operation.__name__.startswith("empty"):
            raise ModelError(
                "This model cannot be built in shards: the initialization of a layer reads its own random "
                "values (nn.init.orthogonal_ and trunc_normal_ do). Set train.shard=optimizer."
            )
        first, *others = noted.steps[: version.steps]
        base: Tensor = self._run(first, self._value).contiguous()

        def view(each: _Version) -> Tensor:
            if self._storage(each.tensor) is not noted:
                return self._value(each)
            return base.as_strided(each.tensor.shape, each.tensor.stride(), each.tensor.storage_offset())

        for step in others:
            self._run(step, view)
        return view(version)

    def _run(self, step: _Step, real: Callable[[_Version], Tensor]) -> Any:
        if step.random is not None:
            torch.set_rng_state(step.random)
        arguments, options = tree_map_only(_Version, real, (step.arguments, step.options))
        return step.operation(*arguments, **options)

    def _note(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
        """A new tensor without memory."""
        shaped: Tensor = _on_meta(func, args, options)
        shaped = torch.empty(shaped.shape, dtype=shaped.dtype, device="meta")
        self._alive.append(shaped)
        self._storages[_address(shaped)] = _Storage()
        self._add(shaped, func, args, options)
        return shaped

    def _note_use(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Something is made of a tensor without memory, or done to it."""
        if _aliases(func):
            return func(*args, **options)  # a view of nothing
        if not _writes(func):
            if self._is_large(func, args, options):
                return self._note(func, args, options)
            return func(*tree_map_only(Tensor, self.value, args), **options)  # somebody looks at its values
        if not self._is_noted(args[0]):
            raise NotImplementedError(f"{func} would write the values of a tensor that has none yet")
        self._add(args[0], func, args, options)
        return args[0]

    def _add(self, target: Tensor, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        def version(each: Tensor) -> Any:
            return _Version(each.detach(), len(self._storage(each).steps)) if self._is_noted(each) else each

        random = torch.get_rng_state() if torch.Tag.nondeterministic_seeded in func.tags else None
        step = _Step(func, tree_map_only(Tensor, version, args), tree_map_only(Tensor, version, options), random)
        self._storage(target).steps.append(step)
        if random is not None and self._draws:  # what comes after it draws other numbers
            func(*tree_map_only(Tensor, _scratch, args), **options)

    def _is_noted(self, value: object) -> bool:
        return isinstance(value, Tensor) and value.device.type == "meta" and _address(value) in self._storages

    def _storage(self, tensor: Tensor) -> _Storage:
        return self._storages[_address(tensor)]

    def _is_large(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Whether the result is one tensor in main memory with many elements; nothing is computed to find out."""
        if len(func._schema.returns) != 1 or _writes(func):
            return False
        device = options.get("device")
        if device is not None and torch.device(device).type != "cpu":
            return False
        try:
            shaped = _on_meta(func, args, options)
        except (NotImplementedError, RuntimeError):  # its shape depends on values
            return False
        return isinstance(shaped, Tensor) and shaped.numel() >= LARGE


class DeferredTensors(Mapping[str, Tensor]):
    """A model's tensors by name, each computed or read when it is asked for."""

    def __init__(self, deferred: Deferred, named: Mapping[str, Tensor]) -> None:
        self._deferred, self._named = deferred, named

    def __getitem__(self, name: str) -> Tensor:
        return self._deferred.value(self._named[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _scratch(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype) if tensor.device.type == "meta" else tensor


def _on_meta(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The result's shape: the operation on tensors of the same shapes without memory."""

    def shape(tensor: Tensor) -> Tensor:
        return tensor if tensor.device.type == "meta" else torch.empty_like(tensor, device="meta")

    options = {name: value for name, value in options.items() if name not in ("device", "pin_memory")}
    if _takes_device(func):
        options["device"] = torch.device("meta")
    return func(*tree_map_only(Tensor, shape, args), **options)


def _takes_device(func: Any) -> bool:
    return any(argument.name == "device" for argument in func._schema.arguments)


def _writes(func: Any) -> bool:
    return any(argument.alias_info and argument.alias_info.is_write for argument in func._schema.arguments)


def _aliases(func: Any) -> bool:
    """Whether the result is a view of an argument."""
    returned = func._schema.returns
    return bool(returned) and returned[0].alias_info is not None and not _writes(func)

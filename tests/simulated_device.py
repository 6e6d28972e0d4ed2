"""A device that computes on the CPU and refuses what CUDA refuses: one operation on tensors of two devices.

Out of its reach is what runs on CUDA alone: Triton kernels, streams, pinned memory, and what recording a graph does.
`simulated_backend.py` has torch make tensors on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

_run_backward = torch.autograd.Variable._execution_engine.run_backward

NAME = "far"
PLACE = f"{NAME}:0"
ATEN = torch.ops.aten
RECURRENT = (torch._VF.lstm, torch._VF.gru)
# Torch takes these apart differently on each kind of device; here they are operations of the CPU.
NARROWED = (*RECURRENT, torch.lstm_cell, torch.gru_cell, torch.nn.functional.scaled_dot_product_attention)
WHOLE = (*NARROWED, torch.nn.functional.dropout, torch.stft, torch.istft)
READ = (Tensor.tolist, Tensor.__repr__, Tensor.__format__, Tensor.untyped_storage)  # of any device
# A view that is conjugated or negated when it is read says so in a flag, which `Far` does not have.
AT_ONCE = {ATEN._conj.default: ATEN._conj_physical.default, ATEN._neg_view.default: ATEN.neg.default}
CROSSING = (ATEN._to_copy, ATEN.copy_)
INDEXING = (ATEN.index, ATEN.index_put, ATEN.index_put_, ATEN._index_put_impl_)
# These wait until the device has the number of their results, or the result itself.
WAITING = (ATEN._local_scalar_dense, ATEN.nonzero, ATEN.masked_select, ATEN.equal, ATEN._unique2, ATEN.unique_dim)
# Of these, CUDA has no version that gives the same bits each time, and refuses where that is asked for.
UNORDERED = (
    ATEN.reflection_pad1d_backward, ATEN.reflection_pad2d_backward, ATEN.nll_loss2d_forward, ATEN.nll_loss2d_backward,
    ATEN._ctc_loss_backward, ATEN.histc, ATEN.kthvalue, ATEN.median, ATEN.put_, ATEN.upsample_linear1d_backward,
    ATEN._adaptive_avg_pool2d_backward, ATEN.adaptive_max_pool2d_backward, ATEN.grid_sampler_2d_backward,
)  # fmt: skip
RECORDED: list[bool] = []  # whether a graph is
FILLING = (ATEN.masked_fill, ATEN.masked_fill_, ATEN.fill, ATEN.fill_)


class MixedDevices(RuntimeError):
    """One operation was given tensors of two devices."""


class Waits(RuntimeError):
    """What is recorded as a CUDA graph asked the device for a value, or gave it one."""


@contextmanager
def recording(is_recorded: bool = True) -> Iterator[None]:
    """Meanwhile, operations are only queued, as while CUDA records a graph: nothing comes from the device or to it."""
    RECORDED.append(is_recorded)
    try:
        yield
    finally:
        RECORDED.pop()


class Far(Tensor):
    """A tensor on the device; `near` has its values."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> "Far":
        """The tensor with these values."""
        layout = {"strides": near.stride(), "storage_offset": near.storage_offset()}
        make = partial(Tensor._make_wrapper_subclass, cls, near.shape, dtype=near.dtype, device=PLACE, **layout)
        if torch.is_inference_mode_enabled() and not near.is_inference():  # a view of a tensor from before the mode
            with torch.inference_mode(False):
                made = make()
        else:
            made = make()
        made.near = near
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` on the CPU as a whole, or let torch take it apart into what `compute` runs."""
        kwargs = kwargs or {}
        if func in READ:
            require_recordable(func, func is not Tensor.tolist)
            return func(args[0].near, *args[1:], **kwargs)
        if func is Tensor.backward:  # which may compute some layers again, and those need this function
            return _run_backward((args[0],), (torch.ones_like(args[0]),), False, False, (), True, True)
        if func is Tensor.data_ptr:
            raise MixedDevices("data_ptr: the CPU does not see the device's memory")
        with torch._C.DisableTorchFunctionSubclass():
            if func not in WHOLE:
                return func(*args, **kwargs)
            given = _tensors([*args, *kwargs.values()])
            is_packed = func in RECURRENT and isinstance(args[1], Tensor)  # its sizes stay on the CPU
            _refuse(func, [each for each in given if not (is_packed and each is args[1])])
            with recording(False):  # on CUDA, nothing leaves the device here
                near_args, near_values = mapped(
                    _narrowed if func in NARROWED else Tensor.cpu, [args, [*kwargs.values()]]
                )
                found = func(*near_args, **dict(zip(kwargs, near_values, strict=True)))
                return mapped(lambda each: each.to(NAME), found)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """The same values in a tensor of its own."""
        made = self.detach().clone()
        is_weight = isinstance(self, torch.nn.Parameter)
        copied = torch.nn.Parameter(made, self.requires_grad) if is_weight else made.requires_grad_(self.requires_grad)
        return memo.setdefault(id(self), copied)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` on the CPU."""
        return compute(func, *args, **(kwargs or {}))


def compute(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation of tensors of the device, or one that makes some, on the CPU."""
    if _is_composite(func):
        return func.decompose(*args, **kwargs)  # torch has not yet, in inference mode
    given: list[Tensor] = []
    near_args, near_kwargs = _near(args, given), {name: _near(each, given) for name, each in kwargs.items()}
    _require_possible(func, args, given)
    goes_far = any(isinstance(each, Far) for each in given)
    if kwargs.get("device") is not None:
        goes_far, near_kwargs["device"] = torch.device(kwargs["device"]).type == NAME, torch.device("cpu")
    stays = goes_far and all(isinstance(each, Far) or each.dim() == 0 for each in given)
    has_masks = func.overloadpacket in INDEXING and any(each.dtype == torch.bool for each in _tensors(args[1]))
    require_recordable(func, stays and func.overloadpacket not in WAITING and not has_masks)
    found = AT_ONCE.get(func, func)(*near_args, **near_kwargs)
    changed = {id(_near(each, [])): each for each in given}  # what is returned where it was changed in place
    if func._schema.is_mutable and any(each.shape != each.near.shape for each in given if isinstance(each, Far)):
        raise NotImplementedError(f"{func} changes a shape in place.")

    def placed(tensor: Tensor) -> Tensor:
        return changed[id(tensor)] if id(tensor) in changed else Far(tensor) if goes_far else tensor

    if func is ATEN._pack_padded_sequence.default:
        return placed(found[0]), found[1]
    return mapped(placed, found)


def _require_possible(func: Any, args: Any, given: list[Tensor]) -> None:
    """Refuse what CUDA would refuse."""
    packet = func.overloadpacket
    if packet in UNORDERED and torch.are_deterministic_algorithms_enabled():
        raise RuntimeError(f"{func} does not have a deterministic implementation.")
    if packet is ATEN._pack_padded_sequence:
        if isinstance(given[1], Far):
            raise MixedDevices("pack_padded_sequence: the lengths belong on the CPU")
    elif packet not in CROSSING and not all(isinstance(each, Far) for each in given):
        indices = args[1] if packet in INDEXING and isinstance(args[0], Far) else ()
        takes_numbers = torch.Tag.pointwise in func.tags or packet in (*FILLING, *INDEXING)
        if func._schema.is_mutable and not isinstance(args[0], Far):
            takes_numbers = False  # what is written to is no number
        is_fine = [any(each is index for index in indices) or (takes_numbers and each.dim() == 0) for each in given]
        _refuse(func, [each for each, fine in zip(given, is_fine, strict=True) if isinstance(each, Far) or not fine])


def require_recordable(func: Any, is_recordable: bool) -> None:
    """Refuse what no graph can hold while one is recorded."""
    if RECORDED[-1:] == [True] and not is_recordable:
        raise Waits(f"{func} cannot be recorded.")


def _refuse(func: Any, given: list[Tensor]) -> None:
    """These have to be on one device."""
    if len({isinstance(each, Far) for each in given}) > 1:
        listed = ", ".join(f"{tuple(each.shape)} on {each.device}" for each in given)
        raise MixedDevices(f"{func}: expected all tensors on one device, found {listed}")


def _narrowed(tensor: Tensor) -> Tensor:
    """On the CPU, in what autocast on the device says."""
    is_cast = torch.is_autocast_enabled(NAME) and tensor.is_floating_point()
    return tensor.to("cpu", torch.get_autocast_dtype(NAME)) if is_cast else tensor.cpu()


def _near(value: Any, given: list[Tensor]) -> Any:
    """The value as the CPU has it; `given` gets its tensors."""
    if isinstance(value, Tensor):
        given.append(value)
        return value.near if isinstance(value, Far) else value
    if isinstance(value, (tuple, list)):
        return type(value)([_near(each, given) for each in value])
    return value


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _near(value, found)
    return found


def mapped(change: Any, value: Any) -> Any:
    """The value with each of its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)([mapped(change, each) for each in value])
    return value


@cache
def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")

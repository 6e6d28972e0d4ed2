"""What torch knows about the simulated device: how tensors are made there, and what autocast casts, as on CUDA.

Torch has to know it before the first backward of a process and cannot forget it, so importing this needs a process of
its own.
"""

from collections.abc import Iterator
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

from simulated_device import ATEN, NAME, Far, compute, mapped, require_recordable

# After the lists of torch's documentation of CUDA's autocast, as far as models have use for them.
LOWER = (
    "addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "convolution einsum gru_cell linear lstm_cell matmul mm mv prelu scaled_dot_product_attention"
)
FLOAT = (
    "acos asin binary_cross_entropy_with_logits cdist cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 "
    "group_norm huber_loss kl_div l1_loss layer_norm linalg_vector_norm log log10 log1p log2 log_softmax logsumexp "
    "mse_loss native_layer_norm nll_loss nll_loss2d norm pow prod reciprocal renorm rsqrt sinh smooth_l1_loss "
    "softmax softplus sum tan"
)
WIDEST = "addcdiv addcmul atan2 bilinear cat cross dot index_put scatter_add stack tensordot vdot"
WITHOUT = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def _is_cast(value: Any) -> bool:
    return isinstance(value, Far) and value.is_floating_point() and value.dtype != torch.float64


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if _is_cast(tensor) else tensor


def _dtypes(value: Any) -> Iterator[torch.dtype]:
    if _is_cast(value):
        yield value.dtype
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _dtypes(each)


def _lower(args: Any) -> torch.dtype:
    return torch.get_autocast_dtype(NAME)


def _float(args: Any) -> torch.dtype:
    return torch.float32


def _widest(args: Any) -> torch.dtype:
    return reduce(torch.promote_types, _dtypes(args), torch.bfloat16)


def _run(func: Any, choose: Any, *args: Any, **kwargs: Any) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(WITHOUT):
        dtype = choose(args)
        args, values = (
            mapped(partial(_cast, dtype=dtype), args),
            mapped(partial(_cast, dtype=dtype), [*kwargs.values()]),
        )
        return func(*args, **dict(zip(kwargs, values, strict=True)))


class _Module(_DummyBackendModule):
    """What torch asks of `torch.far`."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Those of autocast."""
        return [torch.bfloat16, torch.float16]


def _copy_from(near: Tensor, far: Far, non_blocking: bool = False) -> Far:
    """What `torch.tensor(…, device=…)` does, beside `__torch_dispatch__`."""
    require_recordable("torch.tensor", False)
    far.near.copy_(near)
    return far


def _makes_tensors(schema: Any) -> bool:
    kinds = {each.name: str(each.type) for each in schema.arguments}
    return (
        schema.name.startswith("aten::") and "device" in kinds and not any("Tensor" in each for each in kinds.values())
    )


def _register() -> tuple[torch.library.Library, torch.library.Library]:
    """What is registered holds for as long as the libraries live."""
    _setup_privateuseone_for_python_backend(NAME, _Module())
    torch.__future__.set_swap_module_params_on_conversion(True)  # parameters stay the objects that they are
    everything, library = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    for schema in filter(_makes_tensors, torch._C._jit_get_all_schemas()):
        func = getattr(getattr(ATEN, schema.name.removeprefix("aten::")), schema.overload_name or "default")
        library.impl(func, partial(compute, func), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, choose in ((LOWER, _lower), (FLOAT, _float), (WIDEST, _widest)):
        for packet in (getattr(ATEN, name) for name in names.split()):
            for func in (getattr(packet, overload) for overload in packet.overloads()):
                if not func._schema.is_mutable and "Dimname" not in str(func._schema):
                    library.impl(func, partial(_run, func, choose), "AutocastPrivateUse1")
    return everything, library


LIBRARIES = _register()

"""Operations that torch does not have: exact, memory-efficient, the same on every device."""

from functools import cache
from importlib.util import find_spec

from torch import Tensor


def has_triton(tensor: Tensor) -> bool:
    """Whether Triton kernels can run on this tensor's device."""
    return tensor.is_cuda and _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("triton") is not None

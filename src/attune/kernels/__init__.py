"""Arithmetic that torch has no operation for: exact, lean, the same on every device."""

from functools import cache
from importlib.util import find_spec

from torch import Tensor


def has_triton(tensor: Tensor) -> bool:
    """Whether Triton's kernels can compute where this tensor is."""
    return tensor.is_cuda and _is_installed()


@cache
def _is_installed() -> bool:
    return find_spec("triton") is not None

"""How heads score, so that a prediction does not depend on the batch it was made in."""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def as_precise(head: Module, frames: Tensor) -> Module:
    """The head in the precision of its frames, if need be a copy of it.

    How matrix products add up depends on the number of rows and of threads. With float64 frames the difference is
    some 1e-15, and it is gone once the scores are rounded to float32.
    """
    if all(weight.dtype == frames.dtype for weight in head.parameters()):
        return head
    return copy.deepcopy(head).to(frames.dtype)


def spectral_dtype(frames: Tensor) -> torch.dtype:
    """What spectra are taken in beside these frames: their precision, but at least float32, as transforms need."""
    return torch.promote_types(frames.dtype, torch.float32)

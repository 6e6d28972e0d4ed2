"""Running out of memory: reported as such, with the utterances that were too many and the settings that help."""

import ctypes
from collections.abc import Sequence
from contextlib import suppress

import torch

from attune.errors import TrainingError

SHOWN = 5  # ids in the message
NOT_THERE = ("can't allocate memory", "size calculation overflowed")  # as the CPU's allocator words it
MMAP_THRESHOLD, LARGE_BLOCK = -3, 1 << 20  # mallopt's name for it, and bytes


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory was asked for and not there; the CPU's allocator only says so in words."""
    is_known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return is_known or any(words in str(error) for words in NOT_THERE)


def out_of_memory(step: int, ranks: int, of: int, ids: Sequence[str]) -> TrainingError:
    """What to raise, on all ranks alike."""
    where = f" on {ranks} of {of} ranks" if of > 1 else ""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return TrainingError(
        f"Out of memory in step {step}{where}, with a micro-batch of {len(ids)} utterances: "
        f"{', '.join(ids[:SHOWN])}{more}. Lower batches.micro_seconds or micro_utterances and raise "
        "micros_per_step by the same factor (`attune check RECIPE --fit` proposes a value); or lower "
        "data.max_seconds; or set train.precision=bf16, train.shard or gradient_checkpointing. Nothing was "
        "skipped."
    )


def return_freed_memory() -> None:
    """Have the C library give large blocks back when they are freed; by itself, glibc learns to keep up to 32 MiB each.

    Ranks that share a model free a layer as often as they put it together, and would keep most of a share twice.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE_BLOCK)

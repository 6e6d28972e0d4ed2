"""Who computes: a rank among others on a device. Passed, never global; `World.alone()` is a whole world."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attune.errors import ConfigError, RankLost

READER = "DataLoader worker"  # how torch's messages about a process that reads audio begin

NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}  # the precisions that are not the weights' own


def choose_device(wish: str, index: int = 0) -> torch.device:
    """The device that `auto`, `cpu` or `cuda` means on this machine, ready for use."""
    if wish == "auto":
        wish = "cuda" if torch.cuda.is_available() else "cpu"
    if wish == "cuda" and not torch.cuda.is_available():
        raise ConfigError("There is no CUDA device that this torch can use. Leave --device out, or use --device cpu.")
    if wish != "cuda":
        return torch.device(wish)
    torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32, in convolutions too
    return torch.device(wish, index)


@dataclass(frozen=True, slots=True)
class World:
    """A rank, how many there are, and the device it computes on. The collectives are the only way ranks meet."""

    rank: int
    size: int
    device: torch.device
    meeting: Callable[[], AbstractContextManager[object]] = nullcontext  # entered while this rank waits for the others

    @classmethod
    def alone(cls, device: str = "cpu") -> "World":
        """One rank that never waits for anybody."""
        return cls(0, 1, torch.device(device))

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that writes files and speaks to the user."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up `tensor` over the ranks, in place; the order of additions is the same every time."""
        if self.size > 1:
            with self._together():
                dist.all_reduce(tensor)
        return tensor

    def stack(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's `tensor`, in rank order."""
        if self.size == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        with self._together():
            dist.all_gather(parts, tensor)
        return parts

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value` (anything small that pickles), in rank order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._together():
            dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.size > 1:
            with self._together():
                dist.barrier()

    def gather_to_first(self, value: Any) -> list[Any]:
        """As `gather`, but only the first rank receives; the others get nothing."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        with self._together():
            dist.gather_object(value, values)
        return values or []

    def copy_from(self, rank: int, tensor: Tensor) -> None:
        """Replace every rank's `tensor` by that of one of them."""
        if self.size > 1:
            with self._together():
                dist.broadcast(tensor, rank)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What torch says of a rank that is gone is long, and the reason is in that rank's own words."""
        try:
            with self.meeting():
                yield
        except RuntimeError as error:
            if READER in str(error):
                raise  # torch raises this wherever the main thread is, and it is about a child of this rank
            raise RankLost(f"Another rank ended before this one: {str(error).splitlines()[0]}") from error

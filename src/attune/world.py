"""The process group: rank, world size and device. Passed, never global; `World.alone()` is a single process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attune.errors import ConfigError, RankLost

SOMEBODY = "Another rank has exited, so this one stops."  # where nobody knows which
READER = "DataLoader worker"  # the beginning of torch's messages about a killed loader worker

HALF_PRECISION = {"bf16": torch.bfloat16, "fp16": torch.float16}  # the precisions other than that of the weights


def choose_device(wish: str, index: int = 0) -> torch.device:
    """The device for `auto`, `cpu` or `cuda` on this machine, configured."""
    if wish == "auto":
        wish = "cuda" if torch.cuda.is_available() else "cpu"
    if wish == "cuda" and not torch.cuda.is_available():
        build = build_of(torch.version.cuda, torch.version.hip)
        raise ConfigError(
            f"torch {torch.__version__} ({build}) finds no usable CUDA device. "
            "Install a torch wheel that fits the driver (`attune doctor` says which), or use --device cpu."
        )
    if wish != "cuda":
        return torch.device(wish)
    torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32, in convolutions too
    return torch.device(wish, index)


def build_of(cuda: str | None, hip: str | None) -> str:
    """What a torch was built for, in words."""
    return f"built for CUDA {cuda}" if cuda else f"built for ROCm {hip}" if hip else "built for the CPU only"


@dataclass(frozen=True, slots=True)
class World:
    """Rank, world size and device. Ranks communicate through these collectives only."""

    rank: int
    size: int
    device: torch.device
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext  # entered while this rank waits in a collective
    explain_loss: Callable[[], RankLost] = lambda: RankLost(SOMEBODY)  # called when a collective has failed
    group: dist.ProcessGroup | None = None  # None: the one that the processes began with

    @classmethod
    def alone(cls, device: str = "cpu") -> "World":
        """A world of one rank."""
        return cls(0, 1, torch.device(device))

    def apart(self) -> "World":
        """The same ranks with collectives of their own, on the CPU: for a thread beside the one that trains."""
        group = dist.new_group(backend="gloo") if self.size > 1 else None
        return World(self.rank, self.size, torch.device("cpu"), group=group)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum `tensor` over the ranks, in place; the summation order is fixed."""
        if self.size > 1:
            with self._collective():
                dist.all_reduce(tensor, group=self.group)
        return tensor

    def stack(self, tensor: Tensor) -> list[Tensor]:
        """Every rank's `tensor`, in rank order."""
        if self.size == 1:
            return [tensor]
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        with self._collective():
            dist.all_gather(parts, tensor, group=self.group)
        return parts

    def gather(self, value: Any) -> list[Any]:
        """Every rank's `value` (anything small that pickles), in rank order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._collective():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.size > 1:
            with self._collective():
                dist.barrier(self.group)

    def gather_to_first(self, value: Any) -> list[Any]:
        """As `gather`, but only rank 0 receives; the others get an empty list."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        with self._collective():
            dist.gather_object(value, values, group=self.group)
        return values or []

    def copy_from(self, rank: int, tensor: Tensor) -> None:
        """Broadcast one rank's `tensor` to all, in place."""
        if self.size > 1:
            with self._collective():
                dist.broadcast(tensor, rank, group=self.group)

    @contextmanager
    def _collective(self) -> Iterator[None]:
        """Torch's message about a lost rank is long, and the lost rank reports the reason itself."""
        try:
            with self.waiting():
                yield
        except RuntimeError as error:
            if READER in str(error):
                raise  # torch raises this anywhere in the main thread, about a loader worker of this rank
            raise self.explain_loss() from error

"""Where a rank's time goes: computing, waiting for data, and the rest, which is mostly waiting for other ranks.

All ranks end a step together, so the time of a step says nothing about who is slow. What a rank takes until it meets
the others does. On a CUDA device that is measured by the device's own clock, and read when the step looks at it anyway.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

SLOW = 1.5  # times the median of the other ranks
NOTICEABLE = 0.1  # of a step, that the others lose


@dataclass(frozen=True, slots=True)
class RankTime:
    """Seconds that this rank spent in a step, apart from the others."""

    compute_seconds: float = 0.0
    data_seconds: float = 0.0
    micros: int = 0


@dataclass(frozen=True, slots=True)
class RankPace:
    """Means over some steps of a rank."""

    step_seconds: float
    compute_seconds: float
    data_seconds: float
    micros: float  # micro-batches in a step: not every rank has equally many
    memory_gib: float


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that the others wait for."""

    rank: int
    times: float  # as slow as the median of the others
    waits_for_data: bool
    lost_seconds: float  # of each step


class StepTimer:
    """Measures this rank's part of one step after another."""

    def __init__(self, device: torch.device) -> None:
        self._events = (
            [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
            if device.type == "cuda"
            else []
        )
        self._compute = self._data = 0.0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around what this rank computes before it meets the others."""
        began = time.perf_counter()
        for event in self._events[:1]:
            event.record()
        yield
        for event in self._events[1:]:
            event.record()
        self._compute = time.perf_counter() - began

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Around fetching the next step's batches; data that arrives while the device computes delays nobody."""
        began = time.perf_counter()
        yield
        is_busy = bool(self._events) and not self._events[1].query()  # type: ignore[no-untyped-call]
        self._data = 0.0 if is_busy else time.perf_counter() - began

    def read(self, micros: int) -> RankTime:
        """The step's figures; the device must have finished it."""
        if self._events:
            self._compute = self._events[0].elapsed_time(self._events[1]) / 1000
        return RankTime(self._compute, self._data, micros)


def find_stragglers(paces: Sequence[RankPace]) -> list[Straggler]:
    """The ranks that take much longer for a micro-batch than the others, and cost a noticeable part of each step."""
    own = {rank: (each.compute_seconds + each.data_seconds) / each.micros for rank, each in _working(paces)}
    waits = {rank: each.data_seconds / each.micros for rank, each in _working(paces)}
    found = []
    for rank, seconds in own.items():
        others = [other for other in own if other != rank]
        usual = statistics.median(own[other] for other in others) if others else seconds
        lost = (seconds - usual) * paces[rank].micros
        if seconds > SLOW * usual and lost > NOTICEABLE * paces[rank].step_seconds:
            late = waits[rank] - statistics.median(waits[other] for other in others)
            found.append(Straggler(rank, seconds / max(usual, 1e-9), late > (seconds - usual) / 2, lost))
    return found


def _working(paces: Sequence[RankPace]) -> list[tuple[int, RankPace]]:
    return [(rank, each) for rank, each in enumerate(paces) if each.micros]

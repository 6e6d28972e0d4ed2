"""Learning rates as functions of the step: nothing to save, nothing to restore."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """Warm up linearly over `warmup` steps to `lr`, then follow `shape` until `steps`.

    With `restart_every`, the shape is run through in so many steps, again and again (SGDR, arXiv 1608.03983).
    """

    lr: float
    steps: int
    warmup: int
    shape: str  # linear | cosine | constant
    restart_every: int | None = None

    def at(self, step: int) -> float:
        """The learning rate of a step; steps count from 1."""
        if step <= self.warmup:
            return self.lr * step / self.warmup
        since, span = step - 1 - self.warmup, max(1, self.steps - self.warmup)
        if self.restart_every:
            since, span = since % self.restart_every, self.restart_every
        return self.lr * SHAPES[self.shape](min(1.0, since / span))


SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "constant": lambda done: 1.0,
}

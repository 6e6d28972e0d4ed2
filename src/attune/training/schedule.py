"""Learning rates as functions of the step, and of the dev scores so far: nothing else to save or restore."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from attune.types import Metric


@dataclass(frozen=True, slots=True)
class Schedule:
    """Warm up linearly over `warmup` steps to `lr`, then follow `shape` until `steps`.

    With `restart_every`, the shape is run through in so many steps, again and again (SGDR, arXiv 1608.03983).
    """

    lr: float
    steps: int
    warmup: int
    shape: str  # linear | cosine | constant | inverse_sqrt | newbob, which is constant but for `NewBob`
    restart_every: int | None = None

    def at(self, step: int) -> float:
        """The learning rate of a step; steps count from 1."""
        if step <= self.warmup:
            return self.lr * step / self.warmup
        if self.shape == "inverse_sqrt":
            return self.lr * math.sqrt(max(1, self.warmup) / step)
        since, span = step - 1 - self.warmup, max(1, self.steps - self.warmup)
        if self.restart_every:
            since, span = since % self.restart_every, self.restart_every
        return self.lr * SHAPES[self.shape](min(1.0, since / span))


SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "constant": lambda done: 1.0,
    "newbob": lambda done: 1.0,
}


@dataclass(frozen=True, slots=True)
class NewBob:
    """Anneal the learning rate where a dev score improves by less than `threshold`, as a part of the score before.

    `patience` scores in a row may disappoint before the rate is multiplied by `factor`, as in SpeechBrain.
    """

    metric: Metric
    factor: float
    threshold: float
    patience: int

    def at(self, scores: Sequence[float]) -> float:
        """The part of the learning rate that is left after these dev scores, in order."""
        part, left = 1.0, self.patience
        for before, after in pairwise(scores):
            if self._improvement(before, after) >= self.threshold:
                continue
            part, left = (part, left - 1) if left else (part * self.factor, self.patience)
        return part

    def _improvement(self, before: float, after: float) -> float:
        gain = after - before if self.metric.higher_is_better else before - after
        return gain / abs(before) if before else 0.0  # NaN is no improvement: it is not at least the threshold

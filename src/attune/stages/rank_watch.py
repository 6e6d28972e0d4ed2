"""The ranks of a training, watched: where the time of each goes, and which of them the others wait for.

A few numbers of every rank are gathered when a step is logged, never in between.
"""

import socket
from dataclasses import astuple, fields
from typing import Final

import torch

from attune.stages.context import TrainingContext, memory_gib
from attune.training.loop import TrainingStep
from attune.training.pace import RankPace, Straggler, find_stragglers

FEWEST_STEPS = 10  # in a mean: one step more or less says little about a rank
MOST_PLOTTED: Final = 64  # ranks with scalars of their own; of more, the log has all and the trackers the extremes
FIGURES = tuple(each.name for each in fields(RankPace))


class RankWatch:
    """Adds up this rank's steps, and compares the ranks' means now and then."""

    def __init__(self, training: TrainingContext) -> None:
        self._training = training
        self._hosts = training.world.gather(socket.gethostname())
        self._steps = -1  # the first step of a process warms up, and is not counted
        self._sums = [0.0] * 4
        self._slow: set[int] = set()

    def after_step(self, step: TrainingStep, seconds: float) -> tuple[str, ...]:
        """Count a step; where it is time, log all ranks' figures. Returns what there is to say about slow ranks."""
        self._steps += 1
        if not self._steps:
            return ()
        mine = (seconds, step.time.compute_seconds, step.time.data_seconds, float(step.time.micros))
        self._sums = [total + value for total, value in zip(self._sums, mine, strict=True)]
        number, every = step.progress.position.step, self._training.recipe.train.log_every
        if self._steps < FEWEST_STEPS or number % every:
            return ()
        paces = self._gather()
        self._steps, self._sums = 0, [0.0] * 4
        return self._log(number, paces) if self._training.world.is_first else ()

    def _gather(self) -> list[RankPace]:
        world = self._training.world
        means = [total / self._steps for total in self._sums]
        figures = torch.tensor([*means, memory_gib(world)], dtype=torch.float64)
        return [RankPace(*each.tolist()) for each in world.stack(figures.to(world.device))]

    def _log(self, step: int, paces: list[RankPace]) -> tuple[str, ...]:
        log = self._training.log
        columns = dict(zip(FIGURES, zip(*map(astuple, paces), strict=True), strict=True))
        log.write("ranks", step=step, **{name: [round(each, 4) for each in column] for name, column in columns.items()})
        log.plot(step, **_scalars(columns))
        found = find_stragglers(paces)
        for each in found:
            log.write("straggler", step=step, host=self._hosts[each.rank], **_as_log(each))
        new = [each for each in found if each.rank not in self._slow]
        self._slow = {each.rank for each in found}
        return tuple(f"step {step}: {self._describe(each)}" for each in new)

    def _describe(self, slow: Straggler) -> str:
        why = "waits for data: give it more --workers, or nearer data" if slow.waits_for_data else "computes"
        return (
            f"rank {slow.rank} on {self._hosts[slow.rank]} is slow, {slow.times:.1f} × the median of the others, which "
            f"wait {slow.lost_seconds:.2f} s for it in each step. It {why}."
        )


def _as_log(slow: Straggler) -> dict[str, object]:
    doing = "waiting for data" if slow.waits_for_data else "computing"
    return {
        "rank": slow.rank,
        "times": round(slow.times, 2),
        "doing": doing,
        "lost_seconds": round(slow.lost_seconds, 4),
    }


def _scalars(columns: dict[str, tuple[float, ...]]) -> dict[str, float]:
    """Figures by name for the trackers: of each rank, or of the extremes where there are very many."""
    if len(columns["step_seconds"]) <= MOST_PLOTTED:
        return {f"ranks/{name}/{rank}": value for name, each in columns.items() for rank, value in enumerate(each)}
    extremes = {"least": min, "most": max}
    return {f"ranks/{name}/{word}": pick(each) for name, each in columns.items() for word, pick in extremes.items()}

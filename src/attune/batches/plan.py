"""The plan of an epoch: which utterances form which micro-batch, and which micro-batches form which step.

A pure function of (durations, seed, epoch, budget). It does not know how many ranks there are: a step is
`micros_per_step` slots, and ranks only share out the slots. Every utterance is in exactly one micro-batch of an epoch.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.seeds import derive

Rows = NDArray[np.int64]
Seconds = NDArray[np.float64]

# Utterances whose lengths differ by less than this share may trade places from epoch to epoch: wider mixes
# the batches more, narrower pads less. At 0.07 the padding on Common-Voice-like durations is about 3.5 %.
LENGTH_JITTER = 0.07


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one micro-batch may hold (padded seconds, or a number of utterances), and how many make a step."""

    micro_seconds: float | None
    micro_utterances: int | None
    micros_per_step: int


@dataclass(frozen=True, slots=True)
class Plan:
    """An epoch, cut. Micro-batch m is `order[bounds[m]:bounds[m + 1]]`; slots past the last one are empty."""

    order: Rows  # row numbers of all utterances, micro-batch after micro-batch
    bounds: Rows  # (micros + 1,)
    micros_per_step: int

    @property
    def micros(self) -> int:
        """How many micro-batches have utterances in them."""
        return len(self.bounds) - 1

    @property
    def steps(self) -> int:
        """Optimizer steps in this epoch."""
        return -(-self.micros // self.micros_per_step)

    def micro(self, step: int, slot: int) -> Rows:
        """The rows in one slot of a step; empty at the tail of the last step."""
        index = step * self.micros_per_step + slot
        if index >= self.micros:
            return self.order[:0]
        return self.order[self.bounds[index] : self.bounds[index + 1]]


def plan_epoch(seconds: Seconds, rows: Rows, budget: Budget, seed: int, epoch: int) -> Plan:
    """Cut the utterances `rows` into micro-batches of similar length, in a new way each epoch."""
    random = np.random.Generator(np.random.Philox(key=derive(seed, "plan", epoch)))
    # A multiplicative jitter on the length: neighbours trade places, far-apart lengths never meet. Only exact
    # operations here (no logarithm, whose last bit differs between processors), so the plan is the same anywhere.
    lengths = np.where(seconds[rows] > 0, seconds[rows], 1.0)  # rows of text alone have no seconds: any may meet any
    rows = rows[np.argsort(lengths * (1.0 + LENGTH_JITTER * random.random(len(rows))))]
    first_share = float(random.uniform(0.2, 1.0))  # a shorter first micro-batch moves every later cut
    if budget.micro_seconds is None:
        starts = _cut_by_count(len(rows), budget.micro_utterances or 1, first_share)
    else:
        starts = _cut_by_seconds(seconds[rows], budget.micro_seconds, first_share)
    return _shuffled(rows, starts, random.permutation(len(starts)), budget.micros_per_step)


def plan_in_order(seconds: Seconds, budget: Budget) -> Plan:
    """Cut all utterances longest first, for evaluation: the worst batch comes first, and padding is least."""
    rows = np.argsort(-seconds, kind="stable")
    if budget.micro_seconds is None:
        starts = _cut_by_count(len(rows), budget.micro_utterances or 1, 1.0)
    else:
        # Evaluation never refuses an utterance for its length: one that exceeds the budget goes alone, and one without
        # audio counts as a second, until reading it tells whether that is a bad row.
        lengths = np.where(seconds[rows] > 0, seconds[rows], 1.0)
        starts = _cut_by_seconds(np.minimum(lengths, budget.micro_seconds), budget.micro_seconds, 1.0)
    return Plan(rows, np.append(starts, len(rows)).astype(np.int64), budget.micros_per_step)


def spread(plan: Plan, ranks: int) -> Plan:
    """The plan with a batch for every rank, where there are that many utterances: the largest are cut in half."""
    bounds = plan.bounds.tolist()
    while len(bounds) - 1 < min(ranks, len(plan.order)):
        sizes = np.diff(bounds)
        largest = int(sizes.argmax())
        bounds.insert(largest + 1, bounds[largest] + int(sizes[largest] + 1) // 2)
    return replace(plan, bounds=np.array(bounds, dtype=np.int64))


def padding_share(seconds: Seconds, plan: Plan) -> float:
    """The share of padded audio in the plan that is padding."""
    if not plan.micros:
        return 0.0
    longest = np.maximum.reduceat(seconds[plan.order], plan.bounds[:-1])
    padded = float(longest @ np.diff(plan.bounds))
    if not padded:
        return 0.0
    return 1.0 - float(seconds[plan.order].sum()) / padded


def slots_of(rank: int, ranks: int, micros_per_step: int, aligned: bool = False) -> range:
    """The slots of a step that a rank computes, a contiguous block.

    Aligned blocks have a power of two of slots, so that each is a whole branch of one binary tree over all slots.
    """
    block = -(-micros_per_step // ranks)
    if aligned:
        block = 1 << (block - 1).bit_length()
    return range(min(rank * block, micros_per_step), min((rank + 1) * block, micros_per_step))


def _cut_by_count(utterances: int, size: int, first_share: float) -> Rows:
    if not utterances:
        return np.zeros(0, np.int64)
    first = max(1, round(size * first_share))
    return np.concatenate([[0], np.arange(first, utterances, size)]).astype(np.int64)


def _cut_by_seconds(seconds: Seconds, budget: float, first_share: float) -> Rows:
    """Where micro-batches begin, each as many utterances as fit into `budget` when padded to its longest."""
    if len(seconds) and seconds.min() <= 0:
        raise DataError("Rows without audio have no seconds. Set batches.micro_utterances, not batches.micro_seconds.")
    if len(seconds) and seconds.max() > budget:
        raise DataError(
            f"An utterance of {seconds.max():.1f} s does not fit into batches.micro_seconds={budget:g}. "
            "Raise batches.micro_seconds, or lower data.max_seconds."
        )
    starts = []
    start, limit = 0, max(budget * first_share, float(seconds[:1].max(initial=0.0)))
    while start < len(seconds):
        starts.append(start)
        # Lengths rise but for the jitter, so no more than this many can fit.
        most = min(limit / float(seconds[start]) * (1 + 2 * LENGTH_JITTER), len(seconds))
        window = seconds[start : start + int(most) + 1]
        padded = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        start += max(1, int(np.searchsorted(padded, limit, side="right")))
        limit = budget
    return np.array(starts, np.int64)


def _shuffled(rows: Rows, starts: Rows, micro_order: Rows, micros_per_step: int) -> Plan:
    sizes = np.diff(np.append(starts, len(rows)))[micro_order]
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    # Gather whole micro-batches: position p of the result comes from its micro-batch's start plus its offset in it.
    order = np.repeat(starts[micro_order] - bounds[:-1], sizes) + np.arange(len(rows))
    return Plan(rows[order], bounds, micros_per_step)

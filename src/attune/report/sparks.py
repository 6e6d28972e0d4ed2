"""Curves in block characters, for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"


def spark(values: Sequence[float], width: int = 32) -> str:
    """A curve in one line: means of equal stretches, from the lowest block to the highest."""
    if not values:
        return ""
    size = max(1.0, len(values) / width)
    edges = [round(place * size) for place in range(round(len(values) / size) + 1)]
    parts = [values[first:last] for first, last in pairwise(edges) if last > first]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    if high == low:
        return BLOCKS[0] * len(means)
    return "".join(BLOCKS[min(7, int(8 * (mean - low) / (high - low)))] for mean in means)

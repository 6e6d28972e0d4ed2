"""Dynamic time warping over tables of costs, in numpy: along whole sequences, and of a query anywhere in a document."""

# Q frames of one sequence (of a query), F frames of the other (of a document), P pairs
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]


def align(costs: Costs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cheapest path through costs (Q, F) from corner to corner by steps of one in either or both directions.

    Returned as two lists of positions; where paths cost the same, diagonal steps are taken.
    """
    total = np.full((costs.shape[0] + 1, costs.shape[1] + 1), np.inf)
    total[0, 0] = 0.0
    for diagonal in range(2, sum(costs.shape) + 1):  # all cells of a diagonal at once
        rows = np.arange(max(1, diagonal - costs.shape[1]), min(costs.shape[0], diagonal - 1) + 1)
        columns = diagonal - rows
        before = np.minimum(
            total[rows - 1, columns - 1], np.minimum(total[rows - 1, columns], total[rows, columns - 1])
        )
        total[rows, columns] = costs[rows - 1, columns - 1] + before
    return _trace(total)


def _trace(total: Costs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    row, column = total.shape[0] - 1, total.shape[1] - 1
    path = []
    while row and column:
        path.append((row - 1, column - 1))
        steps = ((row - 1, column - 1), (row - 1, column), (row, column - 1))
        row, column = min(steps, key=lambda cell: total[cell])
    places = np.array(path[::-1], np.int64)
    return places[:, 0], places[:, 1]


def subsequence_distances(costs: Sequence[Costs]) -> NDArray[np.float64]:
    """For each table (Q, F) the cost of the cheapest path of the query through any part of the document, per frame.

    Steps are asymmetric: each takes one frame of the query and none, one or two of the document, which may begin and
    end anywhere. All tables are worked through together.
    """
    rows = max(len(each) for each in costs)
    columns = max(each.shape[1] for each in costs)
    padded = np.full((len(costs), rows, columns), np.inf)
    for table, own in zip(padded, costs, strict=True):
        table[: own.shape[0], : own.shape[1]] = own
    total = padded[:, 0]  # (P, F)
    best = np.full(len(costs), np.inf)
    lengths = np.array([len(each) for each in costs])
    for row in range(rows):
        if row:
            shifted = np.pad(total, ((0, 0), (2, 0)), constant_values=np.inf)
            total = padded[:, row] + np.minimum(total, np.minimum(shifted[:, 1:-1], shifted[:, :-2]))
        ends = lengths == row + 1
        best[ends] = total[ends].min(1) / lengths[ends]
    return best

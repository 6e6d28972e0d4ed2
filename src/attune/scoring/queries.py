"""Query-by-example term detection: how well a query matches a document, and the term-weighted value.

Maximum term-weighted value: 1 minus the mean over queries of P(miss) + β P(false alarm), at the one threshold on which
it is highest. The prior and the costs are those of QUESST 2014.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Metric
from attune.scoring.dtw import subsequence_distances

MTWV = Metric("mtwv", "", True, "Maximum term-weighted value over all thresholds, at most 1; 0 if nothing is found.")
PRIOR, MISS_COST, FALSE_ALARM_COST = 0.0008, 100.0, 1.0
BETA = FALSE_ALARM_COST / MISS_COST * (1 / PRIOR - 1)
FEWEST_FRAMES = 5  # a shorter query matches nothing
AT_ONCE = 64  # documents warped together

Features = NDArray[np.float64]  # (F, D)


def match(query: Features, documents: Sequence[Features]) -> NDArray[np.float64]:
    """How well a query is found in each document: higher is better; standardized over the documents."""
    if len(query) < FEWEST_FRAMES:
        return np.zeros(len(documents))
    blocks = [documents[first : first + AT_ONCE] for first in range(0, len(documents), AT_ONCE)]
    distances = [subsequence_distances([cost_table(query, each) for each in block]) for block in blocks]
    scores = -np.concatenate(distances)
    deviation = scores.std()
    return (scores - scores.mean()) / deviation if deviation > 0 else np.zeros(len(documents))


def cost_table(query: Features, document: Features) -> NDArray[np.float64]:
    """exp(cosine distance) - 1 of all pairs of frames (Q, F), each row from 0 to 1."""
    one, other = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-10) for each in (query, document))
    costs: NDArray[np.float64] = np.expm1(1 - one @ other.T)
    low, high = costs.min(1, keepdims=True), costs.max(1, keepdims=True)
    scaled: NDArray[np.float64] = (costs - low) / np.maximum(high - low, 1e-10)
    return scaled


def term_weighted_value(
    scores: NDArray[np.float64], is_match: NDArray[np.bool_], queries: NDArray[np.int64]
) -> tuple[float, float]:
    """The maximum and its threshold, of pairs of query and document; queries without a match are left out.

    `queries` has the number of each pair's query.
    """
    count = int(queries.max()) + 1 if len(queries) else 0
    wanted = np.bincount(queries, is_match, count)
    others = np.bincount(queries, ~is_match, count)
    used = wanted > 0
    if not used.any():
        return 0.0, np.inf
    keep = used[queries]
    scores, is_match, queries = scores[keep], is_match[keep], queries[keep]
    order = np.argsort(-scores, kind="stable")
    gain = np.where(is_match, 1 / wanted[queries], -BETA / np.maximum(others[queries], 1))[order]
    values = np.cumsum(gain) / used.sum()
    ordered = scores[order]
    is_last = np.append(np.diff(ordered) != 0, True)
    values, thresholds = values[is_last], ordered[is_last]
    place = int(np.argmax(values))
    return (float(values[place]), float(thresholds[place])) if values[place] > 0 else (0.0, np.inf)

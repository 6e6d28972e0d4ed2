"""When to stop early: a function of the scores so far, so that a resumed run decides as an unbroken one does."""

from collections.abc import Sequence

from attune.types import Metric


def has_stalled(scores: Sequence[float], patience: int, metric: Metric) -> bool:
    """Whether none of the last `patience` scores is better than the best one before them; NaN never is."""
    earlier, recent = scores[:-patience], scores[-patience:]
    if not earlier:
        return False
    best = earlier[0]
    for score in earlier[1:]:
        best = score if metric.is_better(score, best) else best
    return not any(metric.is_better(score, best) for score in recent)

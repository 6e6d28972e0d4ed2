"""When to stop early: a function of the scores so far, so that a resumed run decides as an unbroken one does."""

import math
from collections.abc import Sequence


def has_stalled(scores: Sequence[float], patience: int, rises: bool) -> bool:
    """Whether none of the last `patience` scores beats the best one before them; NaN beats nothing."""
    worst = -math.inf if rises else math.inf
    known = [worst if math.isnan(score) else score for score in scores]
    earlier, recent = known[:-patience], known[-patience:]
    if not earlier:
        return False
    return max(recent) <= max(earlier) if rises else min(recent) >= min(earlier)

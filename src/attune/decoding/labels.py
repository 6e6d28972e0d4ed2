"""One label for each utterance: the most probable one."""

from attune.types import Hypothesis, LabelScorer


def best(scorer: LabelScorer) -> list[Hypothesis]:
    """The most probable label of each row; of equal ones the first."""
    scores, ids = scorer.log_probs.max(-1)
    return [Hypothesis((label,), score) for label, score in zip(ids.tolist(), scores.tolist(), strict=True)]

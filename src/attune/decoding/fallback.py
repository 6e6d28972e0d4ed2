"""Decode once more, at rising temperatures, what came out doubtful: OpenAI's remedy for loops. Never the default."""

import zlib
from collections.abc import Callable, Sequence

from attune.types import Hypothesis

TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
LEAST_MEAN_SCORE = -1.0  # per token and the end
MOST_REPETITION = 2.4


def fall_back(
    found: Sequence[Hypothesis],
    decode: Callable[[Sequence[int], float], Sequence[Hypothesis]],
    is_doubtful: Callable[[Hypothesis], bool],
) -> list[Hypothesis]:
    """The first hypothesis of each row that can be trusted, or the last; `decode` takes row numbers, temperature."""
    kept = list(found)
    for temperature in TEMPERATURES:
        rows = [row for row, hypothesis in enumerate(kept) if is_doubtful(hypothesis)]
        if not rows:
            break
        for row, hypothesis in zip(rows, decode(rows, temperature), strict=True):
            kept[row] = hypothesis
    return kept


def is_doubtful(hypothesis: Hypothesis, text: str) -> bool:
    """Whether the model was unsure of it, or says the same over and over."""
    mean = hypothesis.score / (len(hypothesis.tokens) + 1)
    return mean < LEAST_MEAN_SCORE or repetition(text) > MOST_REPETITION


def repetition(text: str) -> float:
    """How many times shorter the text gets by compression: above 2 it repeats itself."""
    written = text.encode()
    return len(written) / len(zlib.compress(written))

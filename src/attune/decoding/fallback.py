"""Temperature fallback, OpenAI's remedy for repetition loops: decode again, by sampling at rising temperatures.

What is drawn is a function of the utterance's id and the temperature, so the result does not depend on the batch. A
language model has no part in the draws. Never the default.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from attune.contracts import TaskModel
from attune.decoding.tokens import sample
from attune.seeds import derive
from attune.types import Batch, Hypothesis, TokenScorer, require_text, with_tensors

TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
LOG_PROB_THRESHOLD = -1.0  # the mean per token, the end included
COMPRESSION_RATIO_THRESHOLD = 2.4


def redecode(task_model: TaskModel, batch: Batch, found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses of a batch, those that fail a threshold decoded again."""

    def redraw(rows: Sequence[int], temperature: float) -> list[Hypothesis]:
        chosen = _only(batch, rows)
        return draw(cast(TokenScorer, task_model.model.scorer(chosen)), chosen.ids, temperature)

    def is_doubtful(hypothesis: Hypothesis) -> bool:
        return needs_fallback(hypothesis, require_text(task_model.codec.read(hypothesis)))

    return fall_back(found, redraw, is_doubtful)


def draw(scorer: TokenScorer, ids: Sequence[str], temperature: float) -> list[Hypothesis]:
    """Tokens drawn at a temperature, the same ones for an id each time."""
    return sample(scorer, temperature, [derive(0, "sample", each, f"{temperature:g}") for each in ids])


def _only(batch: Batch, rows: Sequence[int]) -> Batch:
    chosen = list(rows)
    return replace(
        batch,
        ids=tuple(batch.ids[row] for row in chosen),
        audio=batch.audio[chosen],
        lengths=batch.lengths[chosen],
        targets=with_tensors(batch.targets, lambda tensor: tensor[chosen]),
    )


def fall_back(
    found: Sequence[Hypothesis],
    decode: Callable[[Sequence[int], float], Sequence[Hypothesis]],
    is_rejected: Callable[[Hypothesis], bool],
) -> list[Hypothesis]:
    """The first hypothesis of each row that is not rejected, or the last; `decode` takes row numbers, temperature."""
    kept = list(found)
    for temperature in TEMPERATURES:
        rows = [row for row, hypothesis in enumerate(kept) if is_rejected(hypothesis)]
        if not rows:
            break
        for row, hypothesis in zip(rows, decode(rows, temperature), strict=True):
            kept[row] = hypothesis
    return kept


def needs_fallback(hypothesis: Hypothesis, text: str) -> bool:
    """Whether the mean log-probability is too low, or the text repeats itself."""
    # OpenAI's threshold is for probabilities after the filters: a timestamp that is due may be improbable.
    total = hypothesis.score if hypothesis.filtered_log_prob is None else hypothesis.filtered_log_prob
    mean = total / (len(hypothesis.tokens) + 1)
    return mean < LOG_PROB_THRESHOLD or compression_ratio(text) > COMPRESSION_RATIO_THRESHOLD


def compression_ratio(text: str) -> float:
    """How many times shorter the text gets by compression: above 2 it repeats itself."""
    encoded = text.encode()
    return len(encoded) / len(zlib.compress(encoded))

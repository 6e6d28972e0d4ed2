"""Decode once more, at rising temperatures, what came out doubtful: OpenAI's remedy for loops. Never the default.

What is drawn is a function of the utterance's id and the temperature, so the result does not depend on the batch.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from attune.contracts import TaskModel
from attune.decoding.search import Search, search
from attune.decoding.tokens import sample
from attune.errors import ModelError
from attune.seeds import derive
from attune.types import Batch, CtcScorer, Hypothesis, LabelScorer, TokenScorer, TransducerScorer, with_tensors

TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
LEAST_MEAN_SCORE = -1.0  # per token and the end
MOST_REPETITION = 2.4


def find(built: TaskModel, batch: Batch, settings: Search) -> list[Hypothesis]:
    """What a search finds for each utterance; doubtful ones are decoded anew where the settings say so."""
    scorer = built.model.scorer(batch)
    if settings.fallback and isinstance(scorer, CtcScorer | LabelScorer | TransducerScorer):
        raise ModelError("decode.fallback is for models that say one token after another. Set it to false.")
    found = search(scorer, settings)
    if not settings.fallback:
        return found

    def draw(rows: Sequence[int], temperature: float) -> list[Hypothesis]:
        seeds = [derive(0, "sample", batch.ids[row], f"{temperature:g}") for row in rows]
        return sample(cast(TokenScorer, built.model.scorer(_only(batch, rows))), temperature, seeds)

    return fall_back(found, draw, lambda hypothesis: is_doubtful(hypothesis, built.codec.read(hypothesis)))


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
    # OpenAI's limit is for probabilities that are computed after the filters: a time that is due may be improbable.
    total = hypothesis.score if hypothesis.filtered_log_prob is None else hypothesis.filtered_log_prob
    mean = total / (len(hypothesis.tokens) + 1)
    return mean < LEAST_MEAN_SCORE or repetition(text) > MOST_REPETITION


def repetition(text: str) -> float:
    """How many times shorter the text gets by compression: above 2 it repeats itself."""
    written = text.encode()
    return len(written) / len(zlib.compress(written))

"""Corpus BLEU with one reference, as sacreBLEU computes it: 13a tokens, cased, exponential smoothing, orders 1 to 4.

"BLEU: a Method for Automatic Evaluation of Machine Translation" (2002); "A Call for Clarity in Reporting BLEU Scores"
(arXiv 1804.08771).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attune.metrics import Metric, Score
from attune.scoring import bootstrap
from attune.scoring.significance import RateDifference, paired_statistic, utterance_weights

BLEU = Metric("bleu", "", True, "Corpus BLEU of cased 13a tokens, from 0 to 100.")
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"
ORDER = 4

_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_RULES = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),  # punctuation, but not apostrophe, comma, hyphen, period
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),  # period and comma, unless a digit comes before
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),  # or after
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),  # a hyphen after a digit
)


def tokenize(text: str) -> list[str]:
    """The tokens of mteval's 13a tokenizer."""
    text = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, spaced in _RULES:
        text = pattern.sub(spaced, text)
    return text.split()


def sentence_counts(reference: str, hypothesis: str) -> NDArray[np.int64]:
    """Of one sentence: matches of each order, n-grams of each order, and the lengths of hypothesis and reference."""
    wanted, found = tokenize(reference.rstrip()), tokenize(hypothesis.rstrip())
    matches, totals = [], []
    for order in range(1, ORDER + 1):
        own, theirs = _ngrams(found, order), _ngrams(wanted, order)
        matches.append(sum((own & theirs).values()))
        totals.append(sum(own.values()))
    return np.array([*matches, *totals, len(found), len(wanted)], np.int64)


def bleu_of(counts: NDArray[np.int64]) -> float:
    """BLEU from 0 to 100 of counts added up over sentences."""
    matches, totals, (found, wanted) = counts[:ORDER], counts[ORDER : 2 * ORDER], counts[2 * ORDER :]
    if not matches[0] or not totals[ORDER - 1]:
        return 0.0
    logs, smoothing = 0.0, 1.0
    for own, all_of_them in zip(matches, totals, strict=True):
        if own == 0:
            smoothing *= 2
        logs += math.log(own / all_of_them if own else 1 / (smoothing * all_of_them))
    penalty = 1.0 if found >= wanted else math.exp(1 - wanted / found)
    return 100 * penalty * math.exp(logs / ORDER)


def score_translations(references: Sequence[str], hypotheses: Sequence[str], names: Sequence[str]) -> Score:
    """BLEU of a corpus with its 95 % interval; `names` are the sentences' unique names."""
    counts = _counts(references, hypotheses)
    return bootstrap.statistic(BLEU, lambda chosen: bleu_of(counts[chosen].sum(0)), names)


def paired_bleu(references: Sequence[str], first: Sequence[str], second: Sequence[str]) -> RateDifference:
    """The difference of the BLEU of two systems, by paired bootstrap over sentences."""
    one, other = _counts(references, first), _counts(references, second)
    return paired_statistic(
        lambda weights: bleu_of(weights @ one),
        lambda weights: bleu_of(weights @ other),
        utterance_weights(len(references)),
        len(references),
    )


def _counts(references: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.int64]:
    rows = [sentence_counts(*pair) for pair in zip(references, hypotheses, strict=True)]
    return np.array(rows, np.int64).reshape(len(rows), 2 * ORDER + 2)


def _ngrams(tokens: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[place : place + order]) for place in range(len(tokens) - order + 1))

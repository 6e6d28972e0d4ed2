"""Word, character and sentence error rates, with SpeechBrain's counts under SpeechBrain's names.

Words are what stands between white space; characters include one space between words. An empty hypothesis is all
deletions. An empty reference adds its insertions to the edits and nothing to the tokens. A hypothesis that is None is
absent: counted in `num_absent_sents` and not scored. The scores are then of fewer utterances than were asked
for, so whoever evaluates must not end in success. With nothing to score at all, scores are NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.metrics import Metric, Scores
from attune.scoring import bootstrap, edits

WER = Metric("wer", "%", False, "Word error rate: word edits per reference word.")
CER = Metric("cer", "%", False, "Character error rate: character edits per reference character.")
SER = Metric("ser", "%", False, "Sentence error rate: share of the utterances with an error.")
RAW_WER = Metric("raw_wer", "%", False, "Word error rate without the normalizer.")
RAW_CER = Metric("raw_cer", "%", False, "Character error rate without the normalizer.")

# A row per scored utterance: insertions, deletions, substitutions, words, character edits, characters.
Rows = NDArray[np.int64]


def score_texts(references: Sequence[str], hypotheses: Sequence[str | None]) -> Scores:
    """WER, CER and SER in percent with 95 % intervals, and their counts, of texts as they are."""
    rows = _compare_all(references, hypotheses)
    word_edits = rows[:, :3].sum(axis=1)
    values = [
        bootstrap.percent(WER, word_edits, rows[:, 3]),
        bootstrap.percent(CER, rows[:, 4], rows[:, 5]),
        bootstrap.percent(SER, np.minimum(word_edits, 1), np.ones_like(word_edits)),
    ]
    return Scores({score.metric.name: score for score in values}, _counts(rows, len(references)))


def score_transcripts(
    references: Sequence[str], hypotheses: Sequence[str | None], normalize: Callable[[str], str], normalizer: str
) -> Scores:
    """The scores of the normalized texts, and beside them as `raw_` WER and CER of the texts as they are."""
    raw = score_texts(references, hypotheses).values
    normalized = score_texts(
        [normalize(reference) for reference in references],
        [None if hypothesis is None else normalize(hypothesis) for hypothesis in hypotheses],
    )
    raw_values = {each.name: replace(raw[own.name], metric=each) for own, each in ((WER, RAW_WER), (CER, RAW_CER))}
    return Scores({**normalized.values, **raw_values}, normalized.counts, {"normalizer": normalizer})


def _compare_all(references: Sequence[str], hypotheses: Sequence[str | None]) -> Rows:
    if len(references) != len(hypotheses):
        raise DataError(f"{len(references)} references but {len(hypotheses)} hypotheses; give one for each, or None.")
    counts: list[int] = []
    left, right = [], []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        if hypothesis is not None:
            expected, found = reference.split(), hypothesis.split()
            counts += edits.tally(expected, found)
            left.append(" ".join(expected))
            right.append(" ".join(found))
    characters = [edits.distances(left, right), np.array([len(text) for text in left], np.int64)]
    return np.column_stack([np.array(counts, np.int64).reshape(-1, 4), *characters])


def word_errors(
    references: Sequence[str], hypotheses: Sequence[str | None], normalize: Callable[[str], str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The errors and the words of each utterance, for comparing systems; one that is absent has all words wrong."""
    found = [normalize(each or "") for each in hypotheses]
    rows = _compare_all([normalize(each) for each in references], found)
    return rows[:, :3].sum(axis=1), rows[:, 3]


def _counts(rows: Rows, references: int) -> dict[str, int]:
    """Whole numbers, so that the counts of parts add up exactly."""
    insertions, deletions, substitutions, tokens, char_edits, chars = rows.sum(axis=0).tolist()
    return {
        "num_edits": insertions + deletions + substitutions,
        "num_scored_tokens": tokens,
        "num_erroneous_sents": int(rows[:, :3].any(axis=1).sum()),
        "num_scored_sents": len(rows),
        "num_absent_sents": references - len(rows),
        "num_ref_sents": references,
        "insertions": insertions,
        "deletions": deletions,
        "substitutions": substitutions,
        "num_char_edits": char_edits,
        "num_scored_chars": chars,
    }

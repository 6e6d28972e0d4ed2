"""Word, character and sentence error rates, with SpeechBrain's counts under SpeechBrain's names.

Words are what stands between white space; characters include one space between words. An empty hypothesis is all
deletions. An empty reference adds its insertions to the edits and nothing to the tokens. A hypothesis that is None is
absent: counted in `num_absent_sents` and not scored. The figures then speak for fewer utterances than were asked
for, so whoever evaluates must not end in success. With nothing to score at all, figures are NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.scoring import bootstrap, edits
from attune.types import Scores

# A row per scored utterance: insertions, deletions, substitutions, words, character edits, characters.
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """Whole numbers, so that ranks add up exactly: `sum(parts, ErrorCounts())`."""

    num_edits: int = 0
    num_scored_tokens: int = 0
    num_erroneous_sents: int = 0
    num_scored_sents: int = 0
    num_absent_sents: int = 0
    num_ref_sents: int = 0
    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0
    num_char_edits: int = 0
    num_scored_chars: int = 0

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def score_texts(references: Sequence[str], hypotheses: Sequence[str | None]) -> Scores:
    """WER, CER and SER in percent with 95 % intervals, and their counts, of texts as they are."""
    rows = _compare_all(references, hypotheses)
    word_edits = rows[:, :3].sum(axis=1)
    values = {
        "wer": bootstrap.percent(word_edits, rows[:, 3]),
        "cer": bootstrap.percent(rows[:, 4], rows[:, 5]),
        "ser": bootstrap.percent(np.minimum(word_edits, 1), np.ones_like(word_edits)),
    }
    return Scores(values, asdict(_sum(rows, len(references))))


def score_transcripts(
    references: Sequence[str], hypotheses: Sequence[str | None], normalize: Callable[[str], str], normalizer: str
) -> Scores:
    """The scores of the normalized texts, and beside them as `raw_` WER and CER of the texts as they are."""
    raw = score_texts(references, hypotheses).values
    normalized = score_texts(
        [normalize(said) for said in references],
        [None if heard is None else normalize(heard) for heard in hypotheses],
    )
    return Scores({**normalized.values, "raw_wer": raw["wer"], "raw_cer": raw["cer"]}, normalized.counts, normalizer)


def count_errors(references: Sequence[str], hypotheses: Sequence[str | None]) -> ErrorCounts:
    """The counts alone, for one rank's share of the utterances."""
    return _sum(_compare_all(references, hypotheses), len(references))


def _compare_all(references: Sequence[str], hypotheses: Sequence[str | None]) -> Rows:
    if len(references) != len(hypotheses):
        raise DataError(f"{len(references)} references but {len(hypotheses)} hypotheses; give one for each, or None.")
    counts: list[int] = []
    said_texts, heard_texts = [], []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        if hypothesis is not None:
            said, heard = reference.split(), hypothesis.split()
            counts += edits.tally(said, heard)
            said_texts.append(" ".join(said))
            heard_texts.append(" ".join(heard))
    characters = [edits.distances(said_texts, heard_texts), np.array([len(text) for text in said_texts], np.int64)]
    return np.column_stack([np.array(counts, np.int64).reshape(-1, 4), *characters])


def _sum(rows: Rows, references: int) -> ErrorCounts:
    insertions, deletions, substitutions, tokens, char_edits, chars = rows.sum(axis=0).tolist()
    return ErrorCounts(
        num_edits=insertions + deletions + substitutions,
        num_scored_tokens=tokens,
        num_erroneous_sents=int(rows[:, :3].any(axis=1).sum()),
        num_scored_sents=len(rows),
        num_absent_sents=references - len(rows),
        num_ref_sents=references,
        insertions=insertions,
        deletions=deletions,
        substitutions=substitutions,
        num_char_edits=char_edits,
        num_scored_chars=chars,
    )

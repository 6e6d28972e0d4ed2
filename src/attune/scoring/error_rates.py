"""Word, character and sentence error rates, with SpeechBrain's counts under SpeechBrain's names.

Texts come already normalized. Words are what stands between white space; characters include one space between
words. A hypothesis that is None is absent: it is not scored, which flatters no model as long as `num_absent_sents`
is read, so whoever evaluates must not report success while it is above 0. An empty hypothesis is scored: all deletions.
An empty reference adds its insertions to the edits and no token to the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from attune.errors import DataError
from attune.scoring import bootstrap, edits
from attune.types import Scores


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


@dataclass(frozen=True, slots=True)
class _Table:
    """One row per scored utterance."""

    rows: NDArray[np.int64]  # (n, 6) insertions, deletions, substitutions, tokens, character edits, characters
    references: int

    @property
    def word_edits(self) -> NDArray[np.int64]:
        edited: NDArray[np.int64] = self.rows[:, :3].sum(axis=1)
        return edited


def score_texts(references: Sequence[str], hypotheses: Sequence[str | None]) -> Scores:
    """WER, CER and SER in percent with 95 % intervals, and the counts behind them."""
    table = _tabulate(references, hypotheses)
    if not len(table.rows):
        raise DataError(f"Nothing to score: {table.references} references and not one hypothesis.")
    word_edits = table.word_edits
    values = {
        "wer": bootstrap.percent(word_edits, table.rows[:, 3]),
        "cer": bootstrap.percent(table.rows[:, 4], table.rows[:, 5]),
        "ser": bootstrap.percent(word_edits > 0, np.ones_like(word_edits)),
    }
    return Scores(values, asdict(_sum(table)))


def count_errors(references: Sequence[str], hypotheses: Sequence[str | None]) -> ErrorCounts:
    """The counts alone, for one rank's share of the utterances."""
    return _sum(_tabulate(references, hypotheses))


def _tabulate(references: Sequence[str], hypotheses: Sequence[str | None]) -> _Table:
    if len(references) != len(hypotheses):
        raise DataError(f"{len(references)} references but {len(hypotheses)} hypotheses; give one for each, or None.")
    rows = (_compare(said, heard) for said, heard in zip(references, hypotheses, strict=True) if heard is not None)
    return _Table(np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, 6), len(references))


def _compare(reference: str, hypothesis: str) -> tuple[int, int, int, int, int, int]:
    said, heard = reference.split(), hypothesis.split()
    characters = " ".join(said)
    return (*edits.count(said, heard), edits.distance(characters, " ".join(heard)), len(characters))


def _sum(table: _Table) -> ErrorCounts:
    insertions, deletions, substitutions, tokens, char_edits, chars = table.rows.sum(axis=0).tolist()
    return ErrorCounts(
        num_edits=insertions + deletions + substitutions,
        num_scored_tokens=tokens,
        num_erroneous_sents=int(np.count_nonzero(table.word_edits)),
        num_scored_sents=len(table.rows),
        num_absent_sents=table.references - len(table.rows),
        num_ref_sents=table.references,
        insertions=insertions,
        deletions=deletions,
        substitutions=substitutions,
        num_char_edits=char_edits,
        num_scored_chars=chars,
    )

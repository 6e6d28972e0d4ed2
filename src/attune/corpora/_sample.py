"""A part of a corpus: a fixed random subset for frequent evaluation, or rows that follow one another."""

import heapq
from collections.abc import Iterable

import numpy as np

from attune.corpora._manifest import Corpus
from attune.seeds import derive
from attune.types import Utterance


class CorpusSample:
    """Some utterances of a corpus, in its order."""

    def __init__(self, corpus: Corpus, rows: Iterable[int]) -> None:
        self.name = corpus.name
        self.total = len(corpus)
        self.whole = corpus
        self._rows = np.array(list(rows), np.int64)
        self.seconds = corpus.seconds[self._rows]
        self.sets = corpus.sets
        self.origins = corpus.origins[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Utterance:
        return self.whole[int(self._rows[row])]


def sample_corpus(corpus: Corpus, count: int, seed: int) -> CorpusSample:
    """`count` utterances, chosen by ids and seed alone."""
    drawn = ((derive(seed, "sample", utterance.id), row) for row, utterance in enumerate(corpus))
    return CorpusSample(corpus, sorted(row for _, row in heapq.nsmallest(count, drawn)))

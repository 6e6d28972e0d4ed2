"""A fixed random subset of a corpus, for frequent evaluation."""

import heapq

import numpy as np

from attune.corpora._manifest import Corpus
from attune.seeds import derive
from attune.types import Utterance


class CorpusSample:
    """`count` utterances, chosen by ids and seed alone, in the order of the corpus."""

    def __init__(self, corpus: Corpus, count: int, seed: int) -> None:
        drawn = ((derive(seed, "sample", utterance.id), row) for row, utterance in enumerate(corpus))
        self.name = corpus.name
        self.total = len(corpus)
        self.whole = corpus
        self._rows = np.array(sorted(row for _, row in heapq.nsmallest(count, drawn)), np.int64)
        self.seconds = corpus.seconds[self._rows]
        self.sets = corpus.sets
        self.origins = corpus.origins[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Utterance:
        return self.whole[int(self._rows[row])]

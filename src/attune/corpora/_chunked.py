"""A corpus whose long utterances are split at pauses, for models with an input limit.

The chunks depend on the audio only. Unreadable audio stays one chunk: reading it reports the error.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attune.audio.decode import read_utterance
from attune.audio.vad import vad_chunks
from attune.corpora._manifest import Corpus
from attune.corpora._sample import CorpusSample
from attune.errors import DataError
from attune.sources import content_of
from attune.types import Utterance


class ChunkedCorpus:
    """The rows of `whole`, long ones as several chunks; `owners` has the row of each chunk. A row may have none."""

    def __init__(self, whole: Corpus | CorpusSample, longest_seconds: float) -> None:
        self.whole = whole
        self.name = whole.name
        cut: dict[int, list[Utterance]] = {
            int(row): list(_cut(whole[int(row)], longest_seconds))
            for row in np.flatnonzero(whole.seconds > longest_seconds)
        }
        self.owners = [row for row in range(len(whole)) for _ in range(len(cut[row]) if row in cut else 1)]
        self._cut = {
            piece: utterance
            for row, pieces in cut.items()
            for piece, utterance in enumerate(pieces, int(np.searchsorted(self.owners, row)))
        }
        self.seconds = whole.seconds[np.array(self.owners, np.int64)]
        for piece, utterance in self._cut.items():
            self.seconds[piece] = utterance.seconds

    def __len__(self) -> int:
        return len(self.owners)

    def __getitem__(self, piece: int) -> Utterance:
        return self._cut[piece] if piece in self._cut else self.whole[self.owners[piece]]


def _cut(utterance: Utterance, longest_seconds: float) -> Iterator[Utterance]:
    try:
        spans = vad_chunks(read_utterance(utterance, content=content_of(utterance)), longest_seconds)
    except DataError:
        yield utterance
        return
    for span in spans:
        yield replace(utterance, start=(utterance.start or 0.0) + span.start, seconds=span.end - span.start)

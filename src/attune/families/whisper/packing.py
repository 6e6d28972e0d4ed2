"""Several utterances in one window of 30 s, told apart by their times: most of a short clip's own window is silence.

A window is filled with the rows as they come, so what is packed together is a function of the micro-batch, and thus of
the plan. Every token that the utterances would have to learn one by one is learned in the window, at its own time, but
for the ends: a window has one. Rows that are told different things (language, prompt) do not share a window. A row in
which nothing is said is silence after others; it begins no window of theirs, as decoding lets speech begin at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from attune.families.whisper.features import LONGEST
from attune.families.whisper.labels import SECONDS_PER_TIMESTAMP, WhisperVocabulary
from attune.types import SAMPLE_RATE, LoadedRow

STEP = round(SECONDS_PER_TIMESTAMP * SAMPLE_RATE)  # utterances begin at a time that there is a token for


@dataclass(frozen=True, slots=True)
class Packer:
    """Joins rows whose targets have times."""

    vocabulary: WhisperVocabulary
    positions: int

    def __call__(self, rows: Sequence[LoadedRow]) -> list[LoadedRow]:
        """As few rows, in the same order."""
        packed: list[LoadedRow] = []
        for row in rows:
            joined = self._joined(packed[-1], row) if packed else None
            if joined is None:
                packed.append(row)
            else:
                packed[-1] = joined
        return packed

    def _joined(self, window: LoadedRow, row: LoadedRow) -> LoadedRow | None:
        """The window with the row after what it has; None: there is no room, or it is told something else."""
        samples = -(-len(window.audio) // STEP) * STEP
        told, said = self._parted(window.target)
        told_next, said_next = self._parted(row.target)
        target = window.target
        if said_next:
            target = (*told, *said, *self._later(said_next, samples // STEP), self.vocabulary.end)
        is_late = bool(said_next) and not said
        if told != told_next or is_late or samples + len(row.audio) > LONGEST or len(target) > self.positions:
            return None
        silence = np.zeros(samples - len(window.audio), np.float32)
        audio = np.concatenate([window.audio, silence, row.audio])
        return LoadedRow(f"{window.id}+{row.id}", audio, target, window.turn)

    def _parted(self, target: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the decoder is told, and what it learns to say before the end, if there are words in it."""
        told = tuple(takewhile(lambda token: token < self.vocabulary.first_timestamp, target))
        said = tuple(target[len(told) : -1])
        return told, said if any(token < self.vocabulary.first_timestamp for token in said) else ()

    def _later(self, said: Sequence[int], steps: int) -> tuple[int, ...]:
        first, last = self.vocabulary.first_timestamp, self.vocabulary.timestamp(LONGEST / SAMPLE_RATE)
        return tuple(min(token + steps, last) if token >= first else token for token in said)

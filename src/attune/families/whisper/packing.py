"""Several utterances in one window of 30 s, separated by timestamps: most of a short clip's own window is silence.

A window is filled with the rows as they come, so what is packed together is a function of the micro-batch, and thus of
the plan. Every token that the utterances would have to learn one by one is learned in the window, at its own time, but
for the ends: a window has one. Rows with different prompts (language, previous text) do not share a window. A row in
which there is no speech is silence after others; it begins no window of theirs, as decoding lets speech begin at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from attune.families.whisper.features import LONGEST
from attune.families.whisper.labels import SECONDS_PER_TIMESTAMP, WhisperVocabulary
from attune.types import SAMPLE_RATE, LoadedRow, tokens_of

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
        """The window with the row after what it has; None: there is no room, or its prompt differs."""
        samples = -(-len(window.audio) // STEP) * STEP
        prompt, content = self._parted(tokens_of(window.target))
        next_prompt, next_content = self._parted(tokens_of(row.target))
        target = tokens_of(window.target)
        if next_content:
            target = (*prompt, *content, *self._later(next_content, samples // STEP), self.vocabulary.end)
        is_late = bool(next_content) and not content
        if prompt != next_prompt or is_late or samples + len(row.audio) > LONGEST or len(target) > self.positions:
            return None
        silence = np.zeros(samples - len(window.audio), np.float32)
        audio = np.concatenate([window.audio, silence, row.audio])
        return LoadedRow(f"{window.id}+{row.id}", audio, target, window.turn)

    def _parted(self, target: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The prompt, and what follows it before the end, if there are words in it."""
        prompt = tuple(takewhile(lambda token: token < self.vocabulary.first_timestamp, target))
        content = tuple(target[len(prompt) : -1])
        return prompt, content if any(token < self.vocabulary.first_timestamp for token in content) else ()

    def _later(self, content: Sequence[int], steps: int) -> tuple[int, ...]:
        first, last = self.vocabulary.first_timestamp, self.vocabulary.timestamp(LONGEST / SAMPLE_RATE)
        return tuple(min(token + steps, last) if token >= first else token for token in content)

"""Forced alignment of recordings of any length: windows of the audio against the next part of the text.

In a window the path may end anywhere in its text. What ends well before the window does is kept, and the next window
starts in the gap after it; a last quarter of look-ahead makes the path what it would be in the whole recording. Memory
is bounded by the window. The function that aligns windows is passed in and gets the next window of every recording at
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attune.decoding.ctc_alignment import ForcedTokens
from attune.types import SAMPLE_RATE, Hypothesis

Samples = NDArray[np.float32]

KEPT_PART = 0.75  # of a window, and of its text
TOKENS_PER_SECOND = (6.0, 40.0)  # of a window's text at least and at most: slow speech in pieces, fast in characters
DENSER = 2.0  # than the rest of the recording on the whole


@dataclass(frozen=True, slots=True)
class TokenText:
    """The tokens of a text, and from where to where each of its words is; spaces may lie between."""

    tokens: tuple[int, ...]
    words: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TextWindow:
    """A part of a recording, and the tokens that may be in it."""

    recording: int
    samples: Samples
    forced: ForcedTokens


@dataclass(slots=True)
class TokenTimes:
    """The tokens that were aligned, from the first on: when each begins and ends in seconds, and how probable it is."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)

    def add(self, found: Hypothesis, count: int, offset: float, step: float) -> None:
        """Append the first tokens of a window that begins at `offset`, with frames of `step` seconds."""
        self.starts += [offset + frame * step for frame in found.frames[:count]]
        self.ends += [offset + frame * step for frame in found.ends[:count]]
        self.confidences += found.confidences[:count]


Align = Callable[[Sequence[TextWindow]], Sequence[Hypothesis | None]]


@dataclass(slots=True)
class _Place:
    """How far a recording is aligned."""

    samples: Samples
    text: TokenText
    step: int  # samples of a frame
    start: int = 0  # sample
    word: int = 0
    is_stuck: bool = False
    times: TokenTimes = field(default_factory=TokenTimes)

    @property
    def token(self) -> int:
        """The first token that is not aligned yet."""
        return len(self.times.starts)

    @property
    def is_active(self) -> bool:
        return not self.is_stuck and self.word < len(self.text.words) and self.start < len(self.samples)

    def window(self, recording: int, size: int) -> TextWindow:
        """The next part of the recording, with the text that may be in it."""
        left = len(self.samples) - self.start
        tokens = self.text.tokens[self.token :]
        if left > size:
            slow, fast = TOKENS_PER_SECOND
            rate = min(max(DENSER * len(tokens) * SAMPLE_RATE / left, slow), fast)
            tokens = tokens[: round(rate * size / SAMPLE_RATE)]
        starts = frozenset(first - self.token for first, _ in self.text.words if 0 <= first - self.token < len(tokens))
        forced = ForcedTokens(tokens, starts, may_stop=left > size)
        return TextWindow(recording, self.samples[self.start : self.start + size], forced)

    def take(self, found: Hypothesis | None, window: TextWindow) -> None:
        """Keep what is certain of a window and move on."""
        if found is None:
            self.is_stuck = True
        elif not window.forced.may_stop:
            self._keep(found, len(self.text.words))
        else:
            self._move(found, window)

    def _move(self, found: Hypothesis, window: TextWindow) -> None:
        complete = self.word
        while complete < len(self.text.words) and self.text.words[complete][1] - self.token <= len(found.tokens):
            complete += 1
        frames = len(window.samples) // self.step
        is_all_text = self.token + len(window.forced.tokens) == len(self.text.tokens)
        last = complete if is_all_text and len(found.tokens) == len(window.forced.tokens) else complete - 1
        if len(found.tokens) == len(window.forced.tokens) and not is_all_text:  # there may be more text in it
            last = self.word + int(KEPT_PART * (last - self.word))
        kept = self.word
        while kept < last and self._end(found, kept) <= KEPT_PART * frames:
            kept += 1
        if kept == self.word and (not found.frames or found.frames[0] >= frames // 2):
            self.start += frames // 2 * self.step  # nothing yet
        else:
            self._keep(found, max(kept, min(self.word + 1, complete)) or self.word)

    def _end(self, found: Hypothesis, word: int) -> int:
        return found.ends[self.text.words[word][1] - 1 - self.token]

    def _keep(self, found: Hypothesis, words: int) -> None:
        """Keep the tokens up to a word, and start the next window in the gap before it."""
        if words == self.word:
            self.is_stuck = True
            return
        is_all = words == len(self.text.words)
        count = (len(self.text.tokens) if is_all else self.text.words[words][0]) - self.token
        gap = self._end(found, words - 1)
        if not is_all and count < len(found.frames):
            gap = (gap + found.frames[count]) // 2
        # A space before the next word may not have been reached.
        count = min(count, len(found.frames))
        self.times.add(found, count, self.start / SAMPLE_RATE, self.step / SAMPLE_RATE)
        self.word = words
        self.start += max(gap, 1) * self.step


def align_windows(
    recordings: Sequence[Samples], texts: Sequence[TokenText], align: Align, step: int, seconds: float
) -> list[TokenTimes]:
    """The times of each text's tokens, of fewer where the audio has no room for all; `step` is samples a frame."""
    size = round(seconds * SAMPLE_RATE) // step * step
    places = [_Place(samples, text, step) for samples, text in zip(recordings, texts, strict=True)]
    while active := [number for number, place in enumerate(places) if place.is_active]:
        windows = [places[number].window(number, size) for number in active]
        for number, window, found in zip(active, windows, align(windows), strict=True):
            places[number].take(found, window)
    return [place.times for place in places]

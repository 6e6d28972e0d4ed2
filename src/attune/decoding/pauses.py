"""Word times at pauses: where the audio is silent between two words, the silence has the better edges.

CTC emits a token in a frame or two, somewhere within its sound, and attention lingers; the level of the audio shows
when speech begins and ends. Words without a pause between them follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attune.audio.vad import FRAMES_PER_SECOND
from attune.types import Word

SHORTEST_PAUSE = 6  # hundredths of a second; less is the closure of a plosive
REACH = 15  # by how much a token may be emitted too early or too late
FARTHEST = 60  # how far from its tokens a word may begin or end

Frames = tuple[int, int]  # from, up to


def snap_to_pauses(words: Sequence[Word], is_speech: NDArray[np.bool_], offset: float = 0.0) -> tuple[Word, ...]:
    """The words with their edges at those of the pauses between them.

    `is_speech` is by hundredths of a second, `offset` is where that audio begins.
    """
    if not words:
        return ()
    origin = offset - FARTHEST / FRAMES_PER_SECOND  # around the audio is silence
    spans = [tuple(round((each - origin) * FRAMES_PER_SECOND) for each in (word.start, word.end)) for word in words]
    moved = _moved(spans, np.pad(is_speech, FARTHEST))  # type: ignore[arg-type]
    return tuple(
        replace(word, start=_seconds(start, origin, offset), end=_seconds(max(end, start + 1), origin, offset))
        for word, (start, end) in zip(words, moved, strict=True)
    )


def _moved(spans: Sequence[Frames], is_speech: NDArray[np.bool_]) -> Iterator[Frames]:
    first, last = spans[0], spans[-1]
    before, after = max(first[0] - FARTHEST, 0), last[1] + FARTHEST
    pause = _pause(is_speech, (before, before), first)
    start = pause[1] if pause else first[0]
    for left, right in pairwise(spans):
        pause = _pause(is_speech, left, right)
        # Speech that is far from any token of theirs belongs to neither.
        yield start, min(pause[0] if pause else right[0], left[1] + FARTHEST)
        start = max(pause[1], right[0] - FARTHEST) if pause else right[0]
    pause = _pause(is_speech, last, (after, after))
    yield start, pause[0] if pause else last[1]


def _pause(is_speech: NDArray[np.bool_], left: Frames, right: Frames) -> Frames | None:
    """The longest pause between the tokens of two words, which may have been emitted somewhat off."""
    first = max(sum(left) // 2, left[1] - REACH)
    last = min(-(-sum(right) // 2), right[0] + REACH)
    silent = ~is_speech[first:last]
    runs = np.flatnonzero(np.diff(np.pad(silent, 1).astype(np.int8))).reshape(-1, 2)
    if not len(runs):
        return None
    begin, end = runs[int(np.argmax(runs[:, 1] - runs[:, 0]))].tolist()
    return (first + begin, first + end) if end - begin >= SHORTEST_PAUSE else None


def _seconds(frame: int, origin: float, offset: float) -> float:
    return round(max(frame / FRAMES_PER_SECOND + origin, offset), 3)

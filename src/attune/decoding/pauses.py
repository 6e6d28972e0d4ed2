"""Word times at pauses: where the audio is silent between two words, the silence has the better edges.

CTC emits a token in a frame or two, somewhere within its sound, and attention lingers; the level of the audio shows
when speech begins and ends. Words without a pause between them meet between their tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attune.audio.vad import FRAMES_PER_SECOND, Span, SpeechFrames
from attune.types import Word

SHORTEST_PAUSE = 6  # hundredths of a second; less is the closure of a plosive
LONG_PAUSE = 15  # what lies beyond it belongs to another word, or to none
SHORTEST_SPEECH = 6  # between two pauses; less is a click
MEETING = 18  # a word begins at most so long before its first token, where no pause is before it,
MEETING_SHARE = 0.65  # and at most so much of the way back to the word before,
DECIBELS_PER_FRAME = 2.0  # or where it is quieter by this much for each frame of distance
EARLY = 12  # a sound that ends so long before the first token of a word, and a pause after it, is a breath or a click
REACH = 15  # by how much a token may be emitted too early or too late
FARTHEST = 60  # how far from its tokens a word may begin or end
UNCOVERED = 50  # as much speech as this without a word is not in the text

Frames = tuple[int, int]  # from, up to


def without_strays(word: Word, tokens: Sequence[Span], is_speech: NDArray[np.bool_]) -> Word:
    """The word from where to where most of its tokens are: a long pause is inside no word."""
    parts: list[list[Span]] = [[tokens[0]]]
    for left, right in pairwise(tokens):
        first, last = (round(each.start * FRAMES_PER_SECOND) for each in (left, right))
        if last - first >= LONG_PAUSE and _longest(~is_speech[first:last]) >= LONG_PAUSE:
            parts.append([])
        parts[-1].append(right)
    kept = max(parts, key=len)
    return replace(word, start=kept[0].start, end=kept[-1].end) if len(parts) > 1 else word


def _longest(is_in: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.pad(is_in, 1).astype(np.int8))).reshape(-1, 2)
    return int((edges[:, 1] - edges[:, 0]).max(initial=0))


def snap_to_pauses(
    words: Sequence[Word], frames: SpeechFrames, offset: float = 0.0, reach: int = REACH
) -> tuple[Word, ...]:
    """The words with their edges at those of the pauses between them.

    `offset` is where the audio of the frames begins. `reach` is by how much tokens may be off, at most half of their
    word.
    """
    if not words:
        return ()
    origin = offset - FARTHEST / FRAMES_PER_SECOND  # around the audio is silence
    spans = [tuple(round((each - origin) * FRAMES_PER_SECOND) for each in (word.start, word.end)) for word in words]
    moved = _moved(spans, _without_clicks(frames.padded(FARTHEST)), reach)  # type: ignore[arg-type]
    return tuple(
        replace(word, start=_seconds(start, origin, offset), end=_seconds(end, origin, offset))
        for word, (start, end) in zip(words, _one_by_one(moved), strict=True)
    )


def _moved(spans: Sequence[Frames], frames: SpeechFrames, reach: int) -> Iterator[Frames]:
    is_speech = frames.is_speech
    first, last = spans[0], spans[-1]
    before, after = max(first[0] - FARTHEST, 0), last[1] + FARTHEST
    pause = _pause(is_speech, (before, before), first, reach)
    start = pause[1] if pause else first[0]
    for left, right in pairwise(spans):
        pause = _pause(is_speech, left, right, reach)
        end, begin = pause or (_meeting(frames.levels, left[1], right[0]),) * 2
        # Speech that is far from any token of theirs belongs to neither.
        yield start, min(end, left[1] + FARTHEST)
        start = max(begin, right[0] - FARTHEST)
    pause = _pause(is_speech, (max(last[0], start), last[1]), (after, after), reach)
    yield start, pause[0] if pause else last[1]


def _one_by_one(spans: Iterable[Frames]) -> Iterator[Frames]:
    """The same, each at least a frame long and none before the end of another: a transducer may emit words at once."""
    latest = 0
    for start, end in spans:
        start = max(start, latest)
        latest = max(end, start + 1)
        yield start, latest


def _meeting(levels: NDArray[np.float64], end: int, start: int) -> int:
    """Where two words without a pause meet, by where the tokens of the first end and those of the second start.

    A token comes well after its sound begins; near the usual place, the quietest frame is likely.
    """
    usual = start - min(round(MEETING_SHARE * (start - end)), MEETING)
    places = np.arange(end, max(start, end) + 1).clip(max=len(levels) - 1)
    return int(places[np.argmin(levels[places] + DECIBELS_PER_FRAME * np.abs(places - usual))])


def _without_clicks(frames: SpeechFrames) -> SpeechFrames:
    """The same without sounds that are too short for speech and stand alone."""
    kept = frames.is_speech.copy()
    edges = np.flatnonzero(np.diff(np.pad(kept, 1).astype(np.int8))).reshape(-1, 2)
    for number, (start, end) in enumerate(edges):
        before = start - (edges[number - 1][1] if number else -SHORTEST_PAUSE)
        after = (edges[number + 1][0] if number + 1 < len(edges) else end + SHORTEST_PAUSE) - end
        if end - start < SHORTEST_SPEECH and min(before, after) >= SHORTEST_PAUSE:
            kept[start:end] = False
    return replace(frames, is_speech=kept)


def _pause(is_speech: NDArray[np.bool_], left: Frames, right: Frames, reach: int) -> Frames | None:
    """When the left word ends and the right one begins, if a pause is between their tokens.

    The tokens may have been emitted somewhat off. Of several long pauses, each word has the one next to it.
    """
    first = max(sum(left) // 2, left[1] - reach)
    last = min(-(-sum(right) // 2), right[0] + reach)
    silent = ~is_speech[first:last]
    runs = np.flatnonzero(np.diff(np.pad(silent, 1).astype(np.int8))).reshape(-1, 2)
    lengths = runs[:, 1] - runs[:, 0]
    if not len(runs) or lengths.max() < SHORTEST_PAUSE:
        return None
    is_long = lengths >= min(LONG_PAUSE, lengths.max())
    is_early = (lengths >= SHORTEST_PAUSE) & (first + runs[:, 0] <= right[0] - EARLY)
    begin, end = first + int(runs[is_long][0][0]), first + int(runs[is_long | is_early][-1][1])
    # A pause may last longer than where it was looked for.
    before, after = np.flatnonzero(is_speech[left[0] : begin]), np.flatnonzero(is_speech[end : right[1]])
    return left[0] + int(before[-1]) + 1 if len(before) else begin, end + int(after[0]) if len(after) else end


def _seconds(frame: int, origin: float, offset: float) -> float:
    return round(max(frame / FRAMES_PER_SECOND + origin, offset), 3)


def speech_between(words: Sequence[Word], is_speech: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """From when to when there is speech of half a second or more that no word covers, in seconds."""
    uncovered = is_speech.copy()
    for word in words:
        uncovered[round(word.start * FRAMES_PER_SECOND) : round(word.end * FRAMES_PER_SECOND)] = False
    edges = np.flatnonzero(np.diff(np.pad(_joined(uncovered), 1).astype(np.int8))).reshape(-1, 2)
    long = [(int(start), int(end)) for start, end in edges if uncovered[start:end].sum() >= UNCOVERED]
    return [(start / FRAMES_PER_SECOND, end / FRAMES_PER_SECOND) for start, end in long]


def _joined(is_speech: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Speech without the pauses inside it that are shorter than half a second."""
    places = np.flatnonzero(is_speech)
    joined = is_speech.copy()
    for before, after in pairwise(places.tolist()):
        if 1 < after - before <= UNCOVERED:
            joined[before:after] = True
    return joined

"""Long-form decoding by timestamps: each window of a recording starts where the segments of the one before it end.

The function that decodes windows is passed in, and gets the next window of every recording at once. As a window's
result depends on that window alone, a recording's does not depend on the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attune.contracts import TimestampTokens
from attune.types import SAMPLE_RATE

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a recording, and the tokens of the window before it, for models that take them as a prompt."""

    recording: int
    samples: Samples
    previous: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """The transcript from `start` to `end`, in seconds of the recording; the tokens are text, without timestamps."""

    start: float
    end: float
    tokens: tuple[int, ...]
    text: str = ""  # filled in by the caller, who has the tokenizer


@dataclass(frozen=True, slots=True)
class WindowSegments:
    """The segments of a window, and how many seconds of it they cover; the next window starts there."""

    segments: tuple[Segment, ...]
    seconds: float


Decode = Callable[[Sequence[Window]], Sequence[tuple[int, ...]]]


def read_windows(
    recordings: Sequence[Samples], decode: Decode, timestamps: TimestampTokens, seconds: float = 30.0
) -> list[list[Segment]]:
    """The segments of each recording, window by window; each window starts where the last complete segment ended."""
    segments: list[list[Segment]] = [[] for _ in recordings]
    previous: list[tuple[int, ...]] = [() for _ in recordings]
    starts = [0] * len(recordings)
    while active := [index for index, samples in enumerate(recordings) if starts[index] < len(samples)]:
        length = round(seconds * SAMPLE_RATE)
        windows = [Window(i, recordings[i][starts[i] : starts[i] + length], previous[i]) for i in active]
        for index, window, tokens in zip(active, windows, decode(windows), strict=True):
            found = split_window(tokens, timestamps, len(window.samples) / SAMPLE_RATE)
            segments[index] += [_shifted(segment, starts[index] / SAMPLE_RATE) for segment in found.segments]
            previous[index] = tuple(token for segment in found.segments for token in segment.tokens)
            starts[index] += round(found.seconds * SAMPLE_RATE)
    return segments


def split_window(tokens: Sequence[int], timestamps: TimestampTokens, seconds: float) -> WindowSegments:
    """The segments in the tokens of a window of `seconds`, by OpenAI's rules for timestamps.

    Two timestamps in a row separate two segments. Text after the last such pair was cut off by the window and is left
    to the next one, which starts at that pair; a single timestamp at the end means that no speech follows it.
    """
    is_timestamp = [token >= timestamps.begin for token in tokens]
    pairs = [index for index in range(1, len(tokens)) if is_timestamp[index - 1] and is_timestamp[index]]
    is_closed = is_timestamp[-2:] == [False, True]
    if not pairs:
        return WindowSegments(_segments(tokens, [0, len(tokens)], timestamps, seconds), seconds)
    ends = [*pairs, len(tokens)] if is_closed else pairs
    covered = seconds if is_closed else _seconds(tokens[pairs[-1] - 1], timestamps)
    segments = _segments(tokens, [0, *ends], timestamps, seconds)
    return WindowSegments(segments, covered if 0 < covered < seconds else seconds)


def _segments(
    tokens: Sequence[int], bounds: Sequence[int], timestamps: TimestampTokens, seconds: float
) -> tuple[Segment, ...]:
    """The parts that have text and a duration, within the window."""
    found = (_segment(tokens[first:last], timestamps, seconds) for first, last in pairwise(bounds))
    return tuple(segment for segment in found if segment.tokens and segment.start < segment.end)


def _segment(part: Sequence[int], timestamps: TimestampTokens, seconds: float) -> Segment:
    text = tuple(token for token in part if token < timestamps.begin)
    start = _seconds(part[0], timestamps) if part and part[0] >= timestamps.begin else 0.0
    end = _seconds(part[-1], timestamps) if part and part[-1] >= timestamps.begin else seconds
    return Segment(start, min(end, seconds), text)


def _seconds(token: int, timestamps: TimestampTokens) -> float:
    """The time of a timestamp token, from the start of its window."""
    return (token - timestamps.begin) * timestamps.step_seconds


def _shifted(segment: Segment, seconds: float) -> Segment:
    return replace(segment, start=segment.start + seconds, end=segment.end + seconds)

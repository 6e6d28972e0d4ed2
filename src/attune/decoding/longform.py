"""Recordings of any length, read through a window: one after another by timestamps, or chunk by chunk of speech.

What decodes the windows is passed in, and is given the next window of every recording at once. As a window's result
depends on that window alone, a recording's does not depend on the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attune.types import SAMPLE_RATE

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Clock:
    """Tokens that are times: `zero`, and from there one for each step."""

    zero: int
    step_seconds: float = 0.02

    def is_time(self, token: int) -> bool:
        """Whether the token is a time; then it is no text."""
        return token >= self.zero

    def seconds(self, token: int) -> float:
        """The time that a token stands for, from the beginning of its window."""
        return (token - self.zero) * self.step_seconds


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a recording, and what was said in the one before it, for models that take it as a prompt."""

    recording: int
    samples: Samples
    previous: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """What was said from `start` to `end`, in seconds of the recording; the tokens are text, without times."""

    start: float
    end: float
    tokens: tuple[int, ...]
    text: str = ""  # for who can read the tokens to fill in


@dataclass(frozen=True, slots=True)
class WindowSegments:
    """The segments of a window, and how many seconds of it they settle; the next window begins there."""

    segments: tuple[Segment, ...]
    seconds: float


Decode = Callable[[Sequence[Window]], Sequence[tuple[int, ...]]]


def read_windows(
    recordings: Sequence[Samples], decode: Decode, clock: Clock, seconds: float = 30.0
) -> list[list[Segment]]:
    """The segments of each recording, window after window; each begins at the last time the one before is sure of."""
    said: list[list[Segment]] = [[] for _ in recordings]
    previous: list[tuple[int, ...]] = [() for _ in recordings]
    starts = [0] * len(recordings)
    while unread := [index for index, samples in enumerate(recordings) if starts[index] < len(samples)]:
        length = round(seconds * SAMPLE_RATE)
        windows = [Window(i, recordings[i][starts[i] : starts[i] + length], previous[i]) for i in unread]
        for index, window, tokens in zip(unread, windows, decode(windows), strict=True):
            heard = split_window(tokens, clock, len(window.samples) / SAMPLE_RATE)
            said[index] += [_shifted(segment, starts[index] / SAMPLE_RATE) for segment in heard.segments]
            previous[index] = tuple(token for segment in heard.segments for token in segment.tokens)
            starts[index] += round(heard.seconds * SAMPLE_RATE)
    return said


def split_window(tokens: Sequence[int], clock: Clock, seconds: float) -> WindowSegments:
    """What the tokens of a window of so many `seconds` say, by OpenAI's rules for timestamps.

    Two times in a row part two segments. Text after the last such pair was cut off by the window and is left to the
    next one, which begins at that pair; a single time at the end says that nothing follows it.
    """
    is_time = [clock.is_time(token) for token in tokens]
    parts = [index for index in range(1, len(tokens)) if is_time[index - 1] and is_time[index]]
    is_closed = is_time[-2:] == [False, True]
    if not parts:
        return WindowSegments(_segments(tokens, [0, len(tokens)], clock, seconds), seconds)
    ends = [*parts, len(tokens)] if is_closed else parts
    settled = seconds if is_closed else clock.seconds(tokens[parts[-1] - 1])
    return WindowSegments(_segments(tokens, [0, *ends], clock, seconds), settled if 0 < settled < seconds else seconds)


def _segments(tokens: Sequence[int], bounds: Sequence[int], clock: Clock, seconds: float) -> tuple[Segment, ...]:
    """The parts that have text and take time, within the window."""
    found = (_segment(tokens[first:last], clock, seconds) for first, last in pairwise(bounds))
    return tuple(segment for segment in found if segment.tokens and segment.start < segment.end)


def _segment(part: Sequence[int], clock: Clock, seconds: float) -> Segment:
    text = tuple(token for token in part if not clock.is_time(token))
    start = clock.seconds(part[0]) if part and clock.is_time(part[0]) else 0.0
    end = clock.seconds(part[-1]) if part and clock.is_time(part[-1]) else seconds
    return Segment(start, min(end, seconds), text)


def _shifted(segment: Segment, seconds: float) -> Segment:
    return replace(segment, start=segment.start + seconds, end=segment.end + seconds)

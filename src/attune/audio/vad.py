"""Energy-based voice activity detection (VAD): splits long recordings at pauses, deterministically.

A frame louder than the surrounding noise is speech. In doubt it is speech too: decoding some noise does less harm than
missing a word.
"""

# F frames
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attune.types import SAMPLE_RATE

FRAMES_PER_SECOND = 100
SILENCE = -75.0  # dB below full scale, six steps of 16 bits: a recording that is never louder has no speech
ABOVE_NOISE = 5.0  # dB above the noise floor is speech,
BELOW_SPEECH = (40.0, 12.0)  # but the threshold lies at most and at least this many dB below the loudest speech
NOISE_SECONDS = 10  # the noise floor is that of so many seconds before and after
EDGE_ABOVE_NOISE = 10.0  # the same where words begin and end: breath and reverberation are not speech,
EDGE_BELOW_SPEECH = (31.0, 12.0)
EDGE_SECONDS = 3  # and the noise floor and the loudest speech are those nearby
HANGOVER = 20  # frames kept around speech; what is closer than twice this is one span
SHORTEST_SPEECH = 8  # frames; less is a click
LONGEST_PAUSE = 3 * FRAMES_PER_SECOND  # no chunk has a longer one inside

Floats = NDArray[np.float64]
Frames = tuple[int, int]  # from, up to


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` up to `end`, in seconds."""

    start: float
    end: float


def vad_chunks(samples: NDArray[np.float32], max_seconds: float = 30.0, rate: int = SAMPLE_RATE) -> list[Span]:
    """The speech of a recording in chunks of at most `max_seconds`, split at the longest pauses within reach.

    Speech without a pause for that long is split at its quietest frame.
    """
    levels, limit = _levels(samples, rate), int(max_seconds * FRAMES_PER_SECOND)
    pieces = [piece for span in _speech(levels) for piece in _shortened(span, levels, limit)]
    return _in_seconds(_chunks(pieces, limit), len(samples) / rate)


@dataclass(frozen=True, slots=True)
class SpeechFrames:
    """How loud each hundredth of a second is in dB (F,), and whether there is speech in it (F,)."""

    levels: NDArray[np.float64]
    is_speech: NDArray[np.bool_]

    def padded(self, frames: int) -> SpeechFrames:
        """The same with so many frames of silence on both sides."""
        quietest = self.levels.min(initial=0.0)
        return SpeechFrames(np.pad(self.levels, frames, constant_values=quietest), np.pad(self.is_speech, frames))


def is_silent(samples: NDArray[np.float32]) -> bool:
    """Whether a recording is never loud enough for speech."""
    return float(np.abs(samples).max(initial=0.0)) < 10 ** (SILENCE / 20)


def speech_frames(samples: NDArray[np.float32], rate: int = SAMPLE_RATE) -> SpeechFrames:
    """Which frames are clearly louder than the noise nearby and not far softer than speech."""
    levels = _levels(samples, rate)
    return SpeechFrames(levels, levels > _edge_thresholds(levels))


def _levels(samples: NDArray[np.float32], rate: int) -> Floats:
    """The level of each frame, in dB relative to full scale (F,)."""
    hop = rate // FRAMES_PER_SECOND
    centered = samples - np.float32(samples.mean(dtype=np.float64))
    power = np.square(np.pad(centered, (0, -len(samples) % hop))).reshape(-1, hop).mean(1, dtype=np.float64)
    return 10 * np.log10(_around(power, 1) / 3 + 1e-10)


def _speech(levels: Floats) -> list[Frames]:
    is_speech = levels > _thresholds(levels)
    is_kept = _around(is_speech, HANGOVER) > 0.5
    edges = np.flatnonzero(np.diff(np.pad(is_kept, 1).astype(np.int8))).reshape(-1, 2)
    return [(int(start), int(end)) for start, end in edges if is_speech[start:end].sum() >= SHORTEST_SPEECH]


def _thresholds(levels: Floats) -> Floats:
    """The speech threshold of each frame in dB (F,)."""
    loudest, quietest = _by_second(levels)
    floor = _within(quietest, NOISE_SECONDS).min(1)
    return _clipped(floor + ABOVE_NOISE, np.full_like(loudest, loudest.max()), BELOW_SPEECH, len(levels))


def _edge_thresholds(levels: Floats) -> Floats:
    """That of frames where words may begin or end: by the speech nearby, as who speaks may be near or far (F,)."""
    loudest, quietest = _by_second(levels)
    floor, speech = _within(quietest, EDGE_SECONDS).min(1), _within(loudest, EDGE_SECONDS).max(1)
    return _clipped(floor + EDGE_ABOVE_NOISE, speech, EDGE_BELOW_SPEECH, len(levels))


def _by_second(levels: Floats) -> tuple[Floats, Floats]:
    """The levels of loud and of quiet frames in each second."""
    seconds = np.array_split(levels, range(FRAMES_PER_SECOND, len(levels), FRAMES_PER_SECOND))
    loudest, quietest = np.array([np.quantile(second, [0.9, 0.1]) for second in seconds]).T
    return loudest, quietest


def _within(seconds: Floats, reach: int) -> Floats:
    """Each second with its `reach` neighbours on both sides; at the ends, the outermost again."""
    return np.lib.stride_tricks.sliding_window_view(np.pad(seconds, reach, mode="edge"), 2 * reach + 1)


def _clipped(thresholds: Floats, speech: Floats, below: tuple[float, float], frames: int) -> Floats:
    """Thresholds by second as those of frames: neither too far below speech nor too near, infinite in silence."""
    most, least = below
    clipped = np.clip(thresholds, speech - most, speech - least)
    clipped[speech < SILENCE] = np.inf
    return np.repeat(clipped, FRAMES_PER_SECOND)[:frames]


def _around(values: NDArray[Any], reach: int) -> Floats:
    """The sum of each value and its `reach` neighbours on both sides."""
    return np.convolve(np.pad(values.astype(np.float64), reach), np.ones(2 * reach + 1), "valid")


def _shortened(span: Frames, levels: Floats, limit: int) -> Iterator[Frames]:
    """The span in pieces within the limit, each cut at the quietest frame of its second half."""
    start, end = span
    while end - start > limit:
        cut = start + limit // 2 + int(np.argmin(levels[start + limit // 2 : start + limit]))
        yield start, cut
        start = cut
    yield start, end


def _chunks(pieces: Sequence[Frames], limit: int) -> Iterator[Frames]:
    first = 0
    while first < len(pieces):
        after = _end_of_chunk(pieces, first, limit)
        yield pieces[first][0], pieces[after - 1][1]
        first = after


def _end_of_chunk(pieces: Sequence[Frames], first: int, limit: int) -> int:
    """The number of pieces up to the longest pause within the limit, in its second half if there is one."""
    start, after = pieces[first][0], first + 1
    while after < len(pieces) and pieces[after][1] - start <= limit and _pause(pieces, after) <= LONGEST_PAUSE:
        after += 1
    if after == len(pieces) or _pause(pieces, after) > LONGEST_PAUSE:
        return after
    within = range(first + 1, after + 1)
    late = [index for index in within if pieces[index - 1][1] - start >= limit / 2]
    return max(late or within, key=lambda index: (_pause(pieces, index), index))


def _pause(pieces: Sequence[Frames], index: int) -> int:
    """The frames between a piece and the one before."""
    return pieces[index][0] - pieces[index - 1][1]


def _in_seconds(spans: Iterable[Frames], seconds: float) -> list[Span]:
    return [Span(start / FRAMES_PER_SECOND, min(end / FRAMES_PER_SECOND, seconds)) for start, end in spans]

"""Endpointing: utterances are cut out of a stream of samples as soon as the speaker pauses.

Energy decides, as in `audio/vad.py`, but without the future: the noise floor is that of the last seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attune.types import SAMPLE_RATE

FRAME = SAMPLE_RATE // 100  # samples
SILENCE = -65.0  # dB below full scale; nothing quieter is speech
ABOVE_NOISE = 8.0  # dB
NOISE_FRAMES = 500  # that the noise floor is taken from
BEGIN_FRAMES, BEGIN_WINDOW = 8, 15  # so many frames of speech among so many begin an utterance
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """When an utterance begins and ends; OpenAI's names for it are prefix_padding_ms and silence_duration_ms."""

    padding_seconds: float = 0.3  # kept before the first speech
    silence_seconds: float = 0.5  # that end an utterance
    max_seconds: float = 30.0  # after which it is cut at its quietest place


@dataclass(frozen=True, slots=True)
class SpeechSpan:
    """An utterance of the stream: its samples, and where it begins in seconds since the start."""

    start: float
    samples: Samples

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / SAMPLE_RATE


@dataclass(slots=True)
class Endpointer:
    """Takes samples as they come; returns the utterances that have ended. `current` is the one that has not."""

    rules: EndpointRules = EndpointRules()
    _samples: Samples = field(default_factory=lambda: np.empty(0, np.float32))  # since `_first`
    _levels: list[float] = field(default_factory=list)  # dB, of each whole frame since `_first`
    _first: int = 0  # frame at which what is kept begins
    _is_speech: bool = False
    _noise: deque[float] = field(default_factory=lambda: deque(maxlen=NOISE_FRAMES))

    def accept(self, samples: Samples) -> list[SpeechSpan]:
        """Go on with more samples."""
        self._samples = np.concatenate([self._samples, samples])
        found = []
        while len(self._samples) >= (len(self._levels) + 1) * FRAME:
            self._listen()
            if span := self._ended():
                found.append(span)
        return found

    def finish(self) -> list[SpeechSpan]:
        """The utterance that the end of the stream cuts off, if there is one."""
        span = self.current
        self._forget(len(self._levels))
        self._is_speech = False
        return [span] if span else []

    @property
    def current(self) -> SpeechSpan | None:
        """The utterance that is going on, as far as it has come."""
        return SpeechSpan(self._first / 100, self._samples) if self._is_speech else None

    def _listen(self) -> None:
        """Look at the next frame."""
        begin = len(self._levels) * FRAME
        frame = self._samples[begin : begin + FRAME]
        level = float(10 * np.log10(np.square(frame - frame.mean()).mean(dtype=np.float64) + 1e-10))
        self._levels.append(level)
        self._noise.append(level)
        if not self._is_speech:
            recent = self._levels[-BEGIN_WINDOW:]
            self._is_speech = sum(each > self._threshold() for each in recent) >= BEGIN_FRAMES
            if not self._is_speech:
                self._forget(len(self._levels) - BEGIN_WINDOW - round(self.rules.padding_seconds * 100))

    def _ended(self) -> SpeechSpan | None:
        if not self._is_speech:
            return None
        silent = max(1, round(self.rules.silence_seconds * 100))
        tail = self._levels[-silent:]
        if len(self._levels) > silent and max(tail) <= self._threshold():
            self._is_speech = False
            return self._cut(len(self._levels))
        longest = round(self.rules.max_seconds * 100)
        if len(self._levels) >= longest:
            half = longest // 2
            return self._cut(half + int(np.argmin(self._levels[half:])) + 1)
        return None

    def _cut(self, frames: int) -> SpeechSpan:
        span = SpeechSpan(self._first / 100, self._samples[: frames * FRAME])
        self._forget(frames)
        return span

    def _forget(self, frames: int) -> None:
        if frames > 0:
            self._samples, self._levels = self._samples[frames * FRAME :], self._levels[frames:]
            self._first += frames

    def _threshold(self) -> float:
        """Above the quietest tenth of the last seconds."""
        return max(SILENCE, float(np.quantile(self._noise, 0.1)) + ABOVE_NOISE)


@dataclass(slots=True)
class WholeUtterance:
    """Like an Endpointer, for speakers who say when they are done: all samples until then are one utterance."""

    _samples: list[Samples] = field(default_factory=list)
    _start: float = 0.0
    seconds: float = 0.0  # of the utterance so far
    current: None = None  # nothing is shown before its end

    def accept(self, samples: Samples) -> list[SpeechSpan]:
        """Go on with more samples."""
        self._samples.append(samples)
        self.seconds += len(samples) / SAMPLE_RATE
        return []

    def finish(self) -> list[SpeechSpan]:
        """The utterance, if there are any samples."""
        span = SpeechSpan(self._start, np.concatenate([np.empty(0, np.float32), *self._samples]))
        self._start += self.seconds
        self._samples, self.seconds = [], 0.0
        return [span] if len(span.samples) else []

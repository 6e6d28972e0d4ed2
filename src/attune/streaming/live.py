"""One recording while it is being made: partial results as it goes on, a final one at the end of each utterance.

A streaming transducer hears each sample once, and its tokens never change. Any other model sees whole utterances: it is
asked again about the utterance so far, and what two successive hypotheses agree on is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from attune.streaming.agreement import Agreement
from attune.streaming.endpoints import Endpointer, EndpointRules, SpeechSpan
from attune.types import SAMPLE_RATE, Word

Samples = NDArray[np.float32]
StreamKind = Literal["cache-aware", "agreement"]
AGAIN_SECONDS = 1.0  # of new audio between two hypotheses of an unfinished utterance


@dataclass(frozen=True, slots=True)
class LiveResult:
    """The text of the utterance so far, or all of it."""

    text: str
    is_final: bool
    start: float  # seconds, of the utterance
    audio_seconds: float  # that had come by then
    words: tuple[Word, ...] = ()


class LiveStream(Protocol):
    """Takes samples as they come."""

    kind: StreamKind

    def accept(self, samples: Samples) -> list[LiveResult]:
        """Go on with more samples."""

    def finish(self) -> list[LiveResult]:
        """The end of the recording."""


@dataclass(slots=True)
class AgreementStream:
    """For models that see whole utterances; `transcribe` is asked about a span of speech."""

    transcribe: Callable[[SpeechSpan], tuple[str, tuple[Word, ...]]]
    rules: EndpointRules = EndpointRules()
    kind: StreamKind = "agreement"
    _endpointer: Endpointer = field(init=False)
    _agreement: Agreement = field(default_factory=Agreement)
    _asked_seconds: float = 0.0
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        self._endpointer = Endpointer(self.rules)

    def accept(self, samples: Samples) -> list[LiveResult]:
        """Go on with more samples."""
        self._seconds += len(samples) / SAMPLE_RATE
        ended = self._endpointer.accept(samples)
        return [*map(self._final, ended), *self._partial()]

    def finish(self) -> list[LiveResult]:
        """The end of the recording."""
        return [self._final(span) for span in self._endpointer.finish()]

    def _final(self, span: SpeechSpan) -> LiveResult:
        text, words = self.transcribe(span)
        self._agreement, self._asked_seconds = Agreement(), 0.0
        return LiveResult(text, True, span.start, self._seconds, words)

    def _partial(self) -> Iterator[LiveResult]:
        span = self._endpointer.current
        if span and span.seconds - self._asked_seconds >= AGAIN_SECONDS:
            self._asked_seconds = span.seconds
            if self._agreement.update(self.transcribe(span)[0].split()):
                yield LiveResult(" ".join(self._agreement.shown), False, span.start, self._seconds)


@dataclass(slots=True)
class CacheAwareStream:
    """For streaming transducers: `feed` takes samples (and whether they are the last), `found` has all words so far.

    An utterance is final once the speaker pauses. What was shown is only ever added to.
    """

    feed: Callable[[Samples, bool], None]
    found: Callable[[], tuple[Word, ...]]
    rules: EndpointRules = EndpointRules()
    ends_at_pauses: bool = True  # or only with `finish`
    kind: StreamKind = "cache-aware"
    _endpointer: Endpointer = field(init=False)
    _done: int = 0  # words that are final
    _shown: str = ""  # of the utterance
    _seconds: float = 0.0

    def __post_init__(self) -> None:
        self._endpointer = Endpointer(self.rules)

    def accept(self, samples: Samples) -> list[LiveResult]:
        """Go on with more samples."""
        self._seconds += len(samples) / SAMPLE_RATE
        self.feed(samples, False)
        ended = self._endpointer.accept(samples) if self.ends_at_pauses else []
        return [*self._finals(ended), *self._partial()]

    def finish(self) -> list[LiveResult]:
        """The end of the recording."""
        self.feed(np.empty(0, np.float32), True)
        return list(self._final(len(self.found())))

    def _finals(self, ended: list[SpeechSpan]) -> Iterator[LiveResult]:
        for span in ended:
            before = [word for word in self.found() if word.start < span.start + span.seconds]
            yield from self._final(len(before))

    def _final(self, count: int) -> Iterator[LiveResult]:
        words = self.found()[self._done : count]
        if words:
            self._done, self._shown = count, ""
            yield LiveResult(_text(words), True, words[0].start, self._seconds, words)

    def _partial(self) -> Iterator[LiveResult]:
        words = self.found()[self._done :]
        if (text := _text(words)) != self._shown:
            self._shown = text
            yield LiveResult(text, False, words[0].start, self._seconds)


def _text(words: tuple[Word, ...]) -> str:
    return " ".join(word.text for word in words)

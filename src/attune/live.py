"""A model that listens: recordings in pieces as they are made, results as soon as there are any, and their latency."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attune.decoding.streaming import StreamDecoder
from attune.decoding.words import words_of
from attune.recognizer import AudioChunk, Hints, Recognizer
from attune.scorers import StreamingModel
from attune.streaming.endpoints import EndpointRules, SpeechSpan
from attune.streaming.live import AgreementStream, CacheAwareStream, LiveResult, LiveStream
from attune.types import SAMPLE_RATE, Word

NO_HINTS = Hints()
PIECE_SECONDS = 0.1  # that a recording is fed in, when it is there already


@dataclass(frozen=True, slots=True)
class StreamLatency:
    """How late the results of a recording were, in seconds of audio, and how fast the machine was."""

    first_word: float | None  # from the end of the first word to the first result; None: no word
    last_word: float | None  # from the end of the last word to the final result
    real_time_factor: float  # seconds of computing for each second of audio


def open_live(recognizer: Recognizer, hints: Hints = NO_HINTS) -> LiveStream:
    """A stream for this model: cache-aware for a streaming transducer, by agreement for any other."""
    model = recognizer.loaded.task_model.model
    if isinstance(model, StreamingModel) and model.can_stream:
        return _cache_aware(recognizer)

    def transcribe(span: SpeechSpan) -> tuple[str, tuple[Word, ...]]:
        (found,) = recognizer.transcribe_chunks([AudioChunk(span.samples, span.start, hints)])
        return found.text, found.words

    usual = EndpointRules()
    longest = min(usual.max_seconds, recognizer.longest_seconds or usual.max_seconds)
    return AgreementStream(transcribe, EndpointRules(usual.padding_seconds, usual.silence_seconds, longest))


def _cache_aware(recognizer: Recognizer) -> CacheAwareStream:
    task_model = recognizer.loaded.task_model
    decoder = StreamDecoder(task_model)
    stream = decoder.open()
    return CacheAwareStream(
        lambda samples, is_last: decoder.feed([stream], [samples], is_last),
        lambda: words_of(stream.found, task_model),
    )


def pieces(samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """A recording as a microphone would give it."""
    step = round(PIECE_SECONDS * SAMPLE_RATE)
    return (samples[start : start + step] for start in range(0, len(samples), step))


class Listening:
    """The results of a stream of pieces, one after the other; `latency` is known at the end."""

    def __init__(self, stream: LiveStream) -> None:
        self.stream = stream
        self._seconds = self._busy = 0.0
        self._first: float | None = None  # when the first result came, in seconds of audio
        self._words: list[Word] = []
        self._last: float | None = None

    def results(self, audio: Iterable[NDArray[np.float32]]) -> Iterator[LiveResult]:
        """All results, partial and final."""
        for samples in audio:
            began = time.perf_counter()
            found = self.stream.accept(samples)
            self._busy += time.perf_counter() - began
            self._seconds += len(samples) / SAMPLE_RATE
            yield from self._noted(found)
        began = time.perf_counter()
        found = self.stream.finish()
        self._busy += time.perf_counter() - began
        yield from self._noted(found)

    @property
    def latency(self) -> StreamLatency:
        """How late the results were."""
        first = self._first - self._words[0].end if self._words and self._first is not None else None
        last = self._last - self._words[-1].end if self._words and self._last is not None else None
        return StreamLatency(
            None if first is None else round(max(first, 0.0), 3),
            None if last is None else round(max(last, 0.0), 3),
            round(self._busy / max(self._seconds, 1e-9), 4),
        )

    def _noted(self, found: list[LiveResult]) -> Iterator[LiveResult]:
        for each in found:
            if each.text and self._first is None:
                self._first = each.audio_seconds
            if each.is_final:
                self._words += each.words
                self._last = each.audio_seconds
            yield each

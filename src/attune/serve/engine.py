"""The queue of a model: chunks of all clients, decoded together in batches by one thread.

Clients take turns, so that a long file of one does not hold up a short one of another. A chunk's transcript does not
depend on what shares its batch, so every answer is the one that its request would get alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from attune.audio.vad import is_silent
from attune.decoding.streaming import StreamDecoder, TokenStream
from attune.decoding.words import words_of
from attune.errors import AttuneError
from attune.recognizer import AudioChunk, Hints, Recognizer, Transcript
from attune.scorers import StreamingModel
from attune.serve.monitor import Monitor
from attune.serve.problems import ApiError
from attune.serve.settings import ServerLimits
from attune.serve.speakers import SpeakerTurn, turns_of
from attune.types import SAMPLE_RATE, Utterance, Word, require_text

Answer = TypeVar("Answer")
STOPPED = "The server is shutting down."


@dataclass(frozen=True, slots=True)
class ChunkDecoding:
    """How a chunk is decoded; chunks that are decoded alike share a batch."""

    words: bool = False
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class QueuedWork(Generic[Answer]):
    """Something for the thread to do, and who waits for it. `run` may do several of one kind at once."""

    kind: object
    seconds: float
    run: Callable[[Sequence[QueuedWork[Answer]]], Sequence[Answer]]
    item: object  # what it is about
    future: asyncio.Future[Answer]
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class _StreamPiece:
    """More samples of a stream."""

    stream: TokenStream
    samples: NDArray[np.float32]


class FairQueue:
    """What waits, by client; a batch takes one of each client in turn."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self._waiting: OrderedDict[str, deque[QueuedWork[object]]] = OrderedDict()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, client: str, work: QueuedWork[object], is_admitted: bool = False) -> None:
        """Queue something of a client, unless it has too much waiting; what a request goes on with is admitted."""
        with self._changed:
            if self._is_closed:
                raise ApiError(503, STOPPED)
            own = self._waiting.setdefault(client, deque())
            if len(own) >= self.limits.waiting_per_client and not is_admitted:
                raise ApiError(429, f"Too many requests: {len(own)} of yours are waiting. Send fewer at once.")
            own.append(work)
            self._changed.notify()

    def take(self) -> list[QueuedWork[object]]:
        """The next batch, of one kind; empty once the queue is closed and everything in it is done."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            batch: list[QueuedWork[object]] = []
            while (work := self._next(batch)) is not None:
                batch.append(work)
            return batch

    def close(self) -> None:
        """Accept nothing more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def _next(self, batch: Sequence[QueuedWork[object]]) -> QueuedWork[object] | None:
        """The next piece of work that fits the batch, and its client goes to the end of the line."""
        for client, own in self._waiting.items():
            if not batch or self._fits(own[0], batch):
                work = own.popleft()
                del self._waiting[client]
                if own:
                    self._waiting[client] = own
                return work
        return None

    def _fits(self, work: QueuedWork[object], batch: Sequence[QueuedWork[object]]) -> bool:
        seconds = work.seconds + sum(each.seconds for each in batch)
        is_small = len(batch) < self.limits.batch_size and seconds <= self.limits.batch_seconds
        return is_small and work.kind == batch[0].kind


class Engine:
    """A model, its queue and its thread."""

    def __init__(self, name: str, recognizer: Recognizer, limits: ServerLimits, monitor: Monitor) -> None:
        self.name, self.monitor = name, monitor
        self.recognizer = replace(recognizer, max_seconds=limits.chunk_seconds)
        self.queue = FairQueue(limits)
        model = recognizer.loaded.task_model.model
        can_stream = isinstance(model, StreamingModel) and model.can_stream
        self._streams = StreamDecoder(recognizer.loaded.task_model) if can_stream else None
        self._thread = threading.Thread(target=self._decode_all, name=f"decode {name}", daemon=True)

    def start(self) -> None:
        """Begin to decode."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Finish what is waiting, and accept nothing more."""
        self.queue.close()
        self._thread.join(seconds)

    async def transcribe(
        self, client: str, samples: NDArray[np.float32], hints: Hints, decoding: ChunkDecoding
    ) -> AsyncGenerator[Transcript, None]:
        """The transcript of each chunk of a recording, in their order, as soon as it is there.

        As many chunks as a batch may have wait at once, and none when nobody wants the rest.
        """
        waiting: deque[asyncio.Future[Transcript]] = deque()
        try:
            for number, chunk in enumerate(await self._split(client, samples, hints)):
                if len(waiting) == self.queue.limits.batch_size:
                    yield await waiting.popleft()
                waiting.append(self._decode(client, chunk, decoding, is_admitted=number > 0))
            while waiting:
                yield await waiting.popleft()
        finally:
            for each in waiting:
                each.cancel()

    async def _split(self, client: str, samples: NDArray[np.float32], hints: Hints) -> list[AudioChunk]:
        """The chunks; those of a long recording take a pass of the model where its language has to be detected."""
        if is_silent(samples):
            return []
        longest = self.recognizer.longest_seconds
        if longest is None or len(samples) <= longest * SAMPLE_RATE:
            return [AudioChunk(samples, hints=hints)]
        split = self.recognizer.split

        def run(works: Sequence[QueuedWork[list[AudioChunk]]]) -> list[list[AudioChunk]]:
            return [split([samples], [hints])[0] for _ in works]

        return await self._put(client, object(), longest, run, None)

    def _decode(
        self, client: str, chunk: AudioChunk, decoding: ChunkDecoding, is_admitted: bool
    ) -> asyncio.Future[Transcript]:
        recognizer = replace(
            self.recognizer,
            aligns_words=decoding.words,
            search=replace(self.recognizer.search, temperature=decoding.temperature),
        )

        def run(works: Sequence[QueuedWork[Transcript]]) -> list[Transcript]:
            return recognizer.transcribe_chunks([each.item for each in works if isinstance(each.item, AudioChunk)])

        return self._put(client, decoding, chunk.seconds, run, chunk, is_admitted)

    def join(self, texts: Sequence[str], language: str | None) -> str:
        """Texts one after the other, as the language writes them."""
        return require_text(self.recognizer.loaded.task_model.codec.join(texts, Utterance("", 0.0, language=language)))

    async def find_turns(self, client: str, samples: NDArray[np.float32]) -> list[SpeakerTurn]:
        """Who speaks when in a recording, of a model that diarizes."""
        recognizer = self.recognizer

        def run(works: Sequence[QueuedWork[list[SpeakerTurn]]]) -> list[list[SpeakerTurn]]:
            recordings = [each.item for each in works if isinstance(each.item, np.ndarray)]
            return [turns_of(each.value) for each in recognizer.predict(recordings)]

        return await self._put(client, "turns", len(samples) / SAMPLE_RATE, run, samples)

    def open_stream(self) -> TokenStream | None:
        """A stream of its own, where the model hears streams."""
        return self._streams.open() if self._streams else None

    async def feed(self, client: str, stream: TokenStream, samples: NDArray[np.float32], is_last: bool = False) -> None:
        """Go on with a stream; streams of all clients are fed together."""
        decoder = self._streams

        def run(works: Sequence[QueuedWork[None]]) -> list[None]:
            if decoder:
                items = [each.item for each in works if isinstance(each.item, _StreamPiece)]
                decoder.feed([each.stream for each in items], [each.samples for each in items], is_last)
            return [None] * len(works)

        seconds = len(samples) / SAMPLE_RATE
        await self._put(client, ("stream", is_last), seconds, run, _StreamPiece(stream, samples))

    def words(self, stream: TokenStream) -> tuple[Word, ...]:
        """What was found in a stream so far."""
        return words_of(stream.found, self.recognizer.loaded.task_model)

    def _put(
        self,
        client: str,
        kind: object,
        seconds: float,
        run: Callable[[Sequence[QueuedWork[Answer]]], Sequence[Answer]],
        item: object,
        is_admitted: bool = False,
    ) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        work = QueuedWork(kind, seconds, run, item, future, loop)
        self.queue.put(client, work, is_admitted)  # type: ignore[arg-type]
        return future

    def _decode_all(self) -> None:
        while batch := self.queue.take():
            wanted = [work for work in batch if not work.future.cancelled()]  # a client that has gone
            if wanted:
                self._decode_batch(wanted)

    def _decode_batch(self, batch: Sequence[QueuedWork[object]]) -> None:
        try:
            with self.monitor.batch(self.name, len(batch), sum(work.seconds for work in batch)):
                answers = batch[0].run(batch)
        except Exception as error:
            if len(batch) > 1:  # what is wrong with one must not fail the others
                for work in batch:
                    self._decode_batch([work])
                return
            _deliver(batch[0], _problem(error), None)
        else:
            for work, answer in zip(batch, answers, strict=True):
                _deliver(work, None, answer)


def _problem(error: Exception) -> ApiError | Exception:
    return ApiError(422, str(error)) if isinstance(error, AttuneError) else error


def _deliver(work: QueuedWork[object], error: Exception | None, answer: object) -> None:
    def settle() -> None:
        if work.future.cancelled():
            return
        if error is not None:
            work.future.set_exception(error)
        else:
            work.future.set_result(answer)

    work.loop.call_soon_threadsafe(settle)

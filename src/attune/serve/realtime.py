"""The WebSocket: OpenAI's realtime transcription dialect, audio in as base64 PCM16, events out as JSON.

`?rate=16000` (or a session's `audio.input.format.rate`) takes another rate than OpenAI's 24 kHz; binary messages are
PCM16 without base64. While an utterance goes on, words that two successive hypotheses agree on are sent as deltas;
once the speaker pauses, the transcript of the whole utterance is sent as completed. Without turn detection
(`turn_detection: null`) that is when the client commits its audio.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import soxr
from numpy.typing import NDArray
from starlette.websockets import WebSocket as WebSocket
from starlette.websockets import WebSocketDisconnect

from attune.decoding.streaming import TokenStream
from attune.recognizer import Hints, Transcript
from attune.serve.engine import ChunkDecoding, Engine
from attune.serve.problems import ApiError
from attune.streaming.agreement import Agreement
from attune.streaming.endpoints import Endpointer, EndpointRules, SpeechSpan, WholeUtterance
from attune.streaming.live import CacheAwareStream
from attune.types import SAMPLE_RATE, Word

OPENAI_RATE = 24_000
RATES = range(8_000, 48_001)
BUFFER_SECONDS = 600.0  # of audio that a client may send before it commits it, where pauses end nothing
PARTIAL_SECONDS = 1.0  # of new audio between two hypotheses of an unfinished utterance
ITEM = "conversation.item.input_audio_transcription"


async def serve(websocket: WebSocket, find_engine: Callable[[str | None], Engine], client: str) -> None:
    """Transcribe until the client leaves; what is wrong with the address is an event, too."""
    offered = websocket.headers.get("sec-websocket-protocol", "").split(",")
    await websocket.accept("realtime" if "realtime" in [each.strip() for each in offered] else None)
    try:
        session = Session(websocket, find_engine(websocket.query_params.get("model")), client)
    except ApiError as error:
        await _send(websocket, "error", **error.as_json())
        await websocket.close(1008)
        return
    try:
        await session.begin()
        while True:
            await session.take(await websocket.receive())
    except WebSocketDisconnect:
        pass
    finally:
        session.cancel()


class Session:
    """One client's stream: its settings, the utterance that is going on, and what it has been sent."""

    def __init__(self, websocket: WebSocket, engine: Engine, client: str) -> None:
        self.websocket, self.engine, self.client = websocket, engine, client
        self.id = f"sess_{uuid4().hex[:16]}"
        self.hints, self.rules, self.is_manual = Hints(), self._rules({}), False
        self.rate = _rate(websocket.query_params.get("rate", OPENAI_RATE))
        self._restart()
        self.partial: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Greet the client."""
        await self._send("session.created", session=self._described())

    async def take(self, message: Mapping[str, Any]) -> None:
        """Answer one message."""
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        try:
            if message.get("bytes") is not None:
                await self._append(message["bytes"])
            else:
                await self._event(_parsed(message.get("text") or ""))
        except ApiError as error:
            await self._send("error", **error.as_json())

    def cancel(self) -> None:
        """Nobody waits for the rest."""
        if self.partial:
            self.partial.cancel()

    async def _event(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "session.update" | "transcription_session.update":
                self._configure(event.get("session"))
                await self._send("session.updated", session=self._described())
            case "input_audio_buffer.append":
                await self._append(_decoded(event.get("audio")))
            case "input_audio_buffer.commit":
                item = self.item
                await self._end()
                await self._send("input_audio_buffer.committed", item_id=item)
            case "input_audio_buffer.clear":
                self._restart()
                await self._send("input_audio_buffer.cleared")
            case other:
                raise ApiError(422, f"Unknown event {other!r}.", "type")

    def _configure(self, session: object) -> None:
        """Take over what a session says, and keep the rest; OpenAI has had two layouts for it."""
        given = session if isinstance(session, Mapping) else {}
        audio = _mapping(_mapping(given.get("audio")).get("input"))
        if wanted := _mapping(audio.get("transcription") or given.get("input_audio_transcription")):
            self.hints = Hints(_text(wanted.get("language")), _text(wanted.get("prompt")))
        for place in (given, audio):
            if "turn_detection" in place:
                detection = place["turn_detection"]
                self.is_manual, self.rules = detection is None, self._rules(_mapping(detection))
        self.rate = _rate(_mapping(audio.get("format")).get("rate", self.rate))
        self._restart()

    def _rules(self, detection: Mapping[str, Any]) -> EndpointRules:
        usual, longest = EndpointRules(), self.engine.recognizer.longest_seconds
        return EndpointRules(
            _milliseconds(detection.get("prefix_padding_ms"), usual.padding_seconds),
            _milliseconds(detection.get("silence_duration_ms"), usual.silence_seconds),
            min(usual.max_seconds, longest or usual.max_seconds),
        )

    def _restart(self) -> None:
        """Begin with an empty buffer."""
        self.stream = self.engine.open_stream()
        self.live = CacheAwareStream(lambda *_: None, self._words, self.rules, not self.is_manual)
        self.endpointer: Endpointer | WholeUtterance = WholeUtterance() if self.is_manual else Endpointer(self.rules)
        self.resampler = soxr.ResampleStream(self.rate, SAMPLE_RATE, 1, dtype="float32")
        self.odd = b""
        self._begin_item()

    def _begin_item(self) -> None:
        self.item, self.agreement, self.decoded_seconds = f"item_{uuid4().hex[:16]}", Agreement(), 0.0
        self.sent = ""  # of the item's text

    async def _append(self, pcm: bytes) -> None:
        if isinstance(self.endpointer, WholeUtterance) and self.endpointer.seconds > BUFFER_SECONDS:
            raise ApiError(413, f"The buffer is full: {BUFFER_SECONDS:.0f} s. Commit it, or clear it.", "audio")
        pcm, self.odd = self.odd + pcm, b""
        if len(pcm) % 2:
            pcm, self.odd = pcm[:-1], pcm[-1:]
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
        await self._accept(samples if self.rate == SAMPLE_RATE else self.resampler.resample_chunk(samples))

    async def _accept(self, ready: NDArray[np.float32]) -> None:
        if self.stream:
            await self._hear(self.stream, ready)
            return
        was_speech = self.endpointer.current is not None
        ended = self.endpointer.accept(ready)
        if not was_speech and (self.endpointer.current or ended):
            await self._send("input_audio_buffer.speech_started", item_id=self.item)
        await self._commit(ended)
        self._ask_again()

    def _words(self) -> tuple[Word, ...]:
        return self.engine.words(self.stream) if self.stream else ()

    async def _hear(self, stream: TokenStream, samples: NDArray[np.float32], is_last: bool = False) -> None:
        """Go on with a model that hears streams: what it found is never taken back."""
        await self.engine.feed(self.client, stream, samples, is_last)
        results = self.live.finish() if is_last else self.live.accept(samples)
        for result in results:
            await self._send_delta(self.item, result.text)
            if result.is_final:
                await self._send_completed(result.text, result.words)

    async def _end(self) -> None:
        """The client has no more audio for now; some of it the resampler has held back."""
        await self._accept(self.resampler.resample_chunk(np.empty(0, np.float32), last=True))
        self.resampler.clear()
        if self.stream:
            await self._hear(self.stream, np.empty(0, np.float32), is_last=True)
            self._restart()
        else:
            await self._commit(self.endpointer.finish())

    async def _commit(self, spans: list[SpeechSpan]) -> None:
        """Send the transcript of each utterance that has ended."""
        for span in spans:
            self.cancel()
            if not self.is_manual:
                await self._send("input_audio_buffer.speech_stopped", item_id=self.item)
            found = await self._transcript(span)
            await self._send_completed(found.text, found.words)

    async def _send_completed(self, text: str, words: Sequence[Word]) -> None:
        await self._send(
            f"{ITEM}.completed",
            item_id=self.item,
            content_index=0,
            transcript=text,
            words=[{"word": each.text, "start": each.start, "end": each.end} for each in words],
        )
        self._begin_item()

    async def _send_delta(self, item: str, text: str) -> None:
        """Send what the text so far has more than what was sent."""
        if delta := text.removeprefix(self.sent):
            self.sent = text
            await self._send(f"{ITEM}.delta", item_id=item, content_index=0, delta=delta)

    def _ask_again(self) -> None:
        """Decode the unfinished utterance once more, when there is enough more of it and nobody is doing so."""
        span = self.endpointer.current
        if span is None or (self.partial and not self.partial.done()):
            return
        if span.seconds - self.decoded_seconds >= PARTIAL_SECONDS:
            self.decoded_seconds = span.seconds
            self.partial = asyncio.create_task(self._show(span, self.item))

    async def _show(self, span: SpeechSpan, item: str) -> None:
        try:
            found = await self._transcript(span)
        except ApiError:
            return  # the whole utterance is decoded in any case
        if item == self.item and self.agreement.update(found.text.split()):
            await self._send_delta(item, " ".join(self.agreement.shown))

    async def _transcript(self, span: SpeechSpan) -> Transcript:
        parts = self.engine.transcribe(self.client, span.samples, self.hints, ChunkDecoding(words=True))
        found = self.engine.recognizer.join([part async for part in parts], self.hints)
        return found.shifted(span.start)

    def _described(self) -> dict[str, object]:
        return {
            "id": self.id,
            "object": "realtime.transcription_session",
            "type": "transcription",
            "audio": {"input": {"format": {"type": "audio/pcm", "rate": self.rate}}},
        }

    async def _send(self, kind: str, **values: object) -> None:
        await _send(self.websocket, kind, **values)


async def _send(websocket: WebSocket, kind: str, **values: object) -> None:
    await websocket.send_json({"type": kind, "event_id": f"event_{uuid4().hex[:16]}", **values})


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "Expected a JSON event, or binary PCM16.") from error
    if not isinstance(event, Mapping):
        raise ApiError(400, "Expected a JSON object with a `type`.")
    return event


def _decoded(audio: object) -> bytes:
    try:
        return base64.b64decode(audio if isinstance(audio, str) else "*", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ApiError(422, "audio: expected base64 of PCM16.", "audio") from error


def _rate(value: object) -> int:
    rate = int(value) if isinstance(value, str) and value.isdecimal() and len(value) <= 5 else value
    if not isinstance(rate, int) or rate not in RATES:
        raise ApiError(422, f"rate: expected {RATES.start} to {RATES.stop - 1} Hz, found {value!r}.", "rate")
    return rate


def _milliseconds(value: object, usual: float) -> float:
    if not isinstance(value, int | float) or value != value:  # NaN, which Python's json reads
        return usual
    return min(max(value, 0), 10_000) / 1000


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None

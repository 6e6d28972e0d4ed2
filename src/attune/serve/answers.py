"""Transcripts as OpenAI's API answers them: JSON, text, captions, and events of a stream."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from starlette.responses import JSONResponse, PlainTextResponse, Response

from attune.decoding.fallback import compression_ratio
from attune.recognizer import Transcript
from attune.report.timed import TimedText, timed_text
from attune.serve.uploads import Upload
from attune.types import TextSegment, Word

MEDIA_TYPES = {"srt": "application/x-subrip", "vtt": "text/vtt", "text": "text/plain"}
DONE = "data: [DONE]\n\n"


def answer(upload: Upload, found: Transcript) -> Response:
    """The response in the format that was asked for."""
    match upload.format:
        case "text":
            return PlainTextResponse(found.text + "\n")
        case "srt" | "vtt":
            timed = TimedText("file", found.segments, found.words, seconds=upload.seconds)
            captions = timed_text(f".{upload.format}", timed)
            return Response(captions, media_type=MEDIA_TYPES[upload.format])
        case "verbose_json":
            return JSONResponse(verbose(upload, found))
        case _:
            return JSONResponse({"text": found.text, **_logprobs(upload, found), "usage": usage(upload.seconds)})


def verbose(upload: Upload, found: Transcript) -> dict[str, object]:
    """All that is known, in OpenAI's types."""
    written: dict[str, object] = {
        "task": "translate" if upload.hints.translate else "transcribe",
        "language": found.language or "",
        "duration": round(upload.seconds, 3),
        "text": found.text,
        "segments": [_segment(index, each, upload) for index, each in enumerate(found.segments)],
        "usage": usage(upload.seconds),
    }
    return written | ({"words": [_word(each) for each in found.words]} if upload.words else {})


def usage(seconds: float) -> dict[str, object]:
    """What OpenAI would bill: whole seconds of audio."""
    return {"type": "duration", "seconds": math.ceil(seconds)}


def delta(text: str) -> str:
    """The event of some more text."""
    return event({"type": "transcript.text.delta", "delta": text})


def done(upload: Upload, found: Transcript) -> str:
    """The last events: the whole text, and the end of the stream."""
    whole = {"type": "transcript.text.done", "text": found.text, **_logprobs(upload, found)}
    return event({**whole, "usage": usage(upload.seconds)}) + DONE


def event(value: Mapping[str, object]) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _segment(index: int, segment: TextSegment, upload: Upload) -> dict[str, object]:
    return {
        "id": index,
        "seek": round(segment.start * 100),
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": [],
        "temperature": upload.temperature,
        "avg_logprob": segment.mean_log_prob,
        "compression_ratio": round(compression_ratio(segment.text), 4),
        "no_speech_prob": 0.0,  # pauses are cut out by voice activity, and no model here estimates it
    }


def _word(word: Word) -> dict[str, object]:
    return {"word": word.text, "start": word.start, "end": word.end, "confidence": word.confidence}


def _logprobs(upload: Upload, found: Transcript) -> dict[str, object]:
    """With include[]=logprobs: that of each word, the least sure of its tokens."""
    if not upload.logprobs:
        return {}
    return {
        "logprobs": [
            {
                "token": word.text,
                "bytes": list(word.text.encode()),
                "logprob": round(math.log(max(word.confidence, 1e-9)), 4),
            }
            for word in found.words
        ]
    }

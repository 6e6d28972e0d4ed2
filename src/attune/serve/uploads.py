"""What clients send: a multipart form with a recording, in OpenAI's field names; nothing of it is kept.

The official client sends lists as `name[]` and objects as `name[key]`; both are accepted without brackets too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from attune.audio.decode import audio_seconds, read_audio
from attune.errors import DataError
from attune.recognizer import Hints
from attune.serve.problems import ApiError
from attune.serve.settings import ServerLimits
from attune.types import SAMPLE_RATE

ResponseFormat = Literal["json", "text", "srt", "vtt", "verbose_json", "diarized_json"]
FORMATS: tuple[ResponseFormat, ...] = get_args(ResponseFormat)
GRANULARITIES = ("word", "segment")
MOST_FIELDS, LONGEST_FIELD = 512, 1 << 16  # bytes, of a field that is no file
MOST_KEYWORDS, LONGEST_KEYWORD = 200, 100
READABLE = "wav, flac, mp3, ogg, opus, m4a, mp4, webm, aac, wma or amr"


@dataclass(frozen=True, slots=True)
class Upload:
    """A request for a transcript, checked."""

    model: str | None
    samples: NDArray[np.float32]
    hints: Hints
    format: ResponseFormat = "json"
    temperature: float = 0.0
    words: bool = False  # in the answer
    is_stream: bool = False
    logprobs: bool = False

    @property
    def seconds(self) -> float:
        """How long the recording is."""
        return len(self.samples) / SAMPLE_RATE


async def read_upload(request: Request, limits: ServerLimits, translate: bool) -> Upload:
    """The form of a request, its recording decoded."""
    try:
        async with asyncio.timeout(limits.upload_seconds):
            form = await request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=LONGEST_FIELD)
    except TimeoutError as error:
        raise ApiError(408, f"The upload took over {limits.upload_seconds:.0f} s.") from error
    except HTTPException as error:  # of the form's parser
        raise ApiError(400, f"The request is not a multipart form: {error.detail}") from error
    try:
        return await _read_form(form, limits, translate)
    finally:
        await form.close()


async def _read_form(form: FormData, limits: ServerLimits, translate: bool) -> Upload:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise ApiError(400, "No audio: send it as the form's `file`.", "file")
    fields = _Fields(form)
    asked = Upload(
        model=fields.text("model"),
        samples=np.empty(0, np.float32),
        hints=Hints(_language(fields), fields.text("prompt"), translate, _keywords(fields)),
        format=fields.one_of("response_format", FORMATS),
        temperature=fields.number("temperature"),
        words="word" in fields.several_of("timestamp_granularities", GRANULARITIES),
        is_stream=fields.flag("stream"),
        logprobs="logprobs" in fields.several_of("include", ("logprobs",)),
    )
    fields.require_chunking()
    samples = await asyncio.to_thread(decode_recording, await file.read(), limits.audio_seconds)
    return replace(asked, samples=samples)


def decode_recording(content: bytes, max_seconds: float) -> NDArray[np.float32]:
    """The samples of an encoded recording that is not longer than allowed."""
    if not content:
        raise ApiError(400, "The file is empty.", "file")
    try:
        seconds = audio_seconds("The file", content, stop_after=max_seconds)
        if seconds > max_seconds:
            raise ApiError(413, f"The recording is longer than {max_seconds:.0f} s, the most that is accepted.", "file")
        return read_audio("The file", content=content)
    except DataError as error:
        raise ApiError(415, f"The file cannot be decoded. Send {READABLE}.", "file") from error


def _language(fields: _Fields) -> str | None:
    several = fields.texts("languages")
    return fields.text("language") or (several[0] if len(several) == 1 else None)


def _keywords(fields: _Fields) -> tuple[str, ...]:
    found = fields.texts("keywords")
    if len(found) > MOST_KEYWORDS or any(len(each) > LONGEST_KEYWORD for each in found):
        raise ApiError(422, f"keywords: at most {MOST_KEYWORDS}, of {LONGEST_KEYWORD} characters.", "keywords")
    return tuple(found)


class _Fields:
    """The fields of a form by their plain names."""

    def __init__(self, form: FormData) -> None:
        self.values: dict[str, list[str]] = {}
        for name, value in form.multi_items():
            if isinstance(value, str):
                self.values.setdefault(name.removesuffix("[]"), []).append(value)

    def text(self, name: str) -> str | None:
        """One text; an empty one counts as absent."""
        return next(iter(self.texts(name)), None)

    def texts(self, name: str) -> list[str]:
        """All texts of a list."""
        return [value for value in self.values.get(name, ()) if value.strip()]

    def flag(self, name: str) -> bool:
        value = (self.text(name) or "false").lower()
        if value not in ("true", "false", "1", "0"):
            raise ApiError(422, f"{name}: expected true or false, found {value!r}.", name)
        return value in ("true", "1")

    def number(self, name: str) -> float:
        value = self.text(name) or "0"
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1:
            raise ApiError(422, f"{name}: expected a number from 0 to 1, found {value!r}.", name)
        return number

    def one_of(self, name: str, known: Sequence[ResponseFormat]) -> ResponseFormat:
        value = self.text(name) or known[0]
        for each in known:
            if value == each:
                return each
        raise ApiError(422, f"{name}: expected {', '.join(known)}; found {value!r}.", name)

    def several_of(self, name: str, known: Sequence[str]) -> set[str]:
        found = set(self.texts(name))
        if unknown := found - set(known):
            raise ApiError(422, f"{name}: expected {' or '.join(known)}; found {min(unknown)!r}.", name)
        return found

    def require_chunking(self) -> None:
        """Long recordings are cut at pauses in any case; `auto` and server_vad are what that is called."""
        value = self.text("chunking_strategy") or self.text("chunking_strategy[type]") or "auto"
        if value.startswith("{"):
            value = _type_of(value)
        if value not in ("auto", "server_vad"):
            raise ApiError(
                422, f"chunking_strategy: expected auto or server_vad, found {value!r}.", "chunking_strategy"
            )


def _type_of(written: str) -> str:
    try:
        value = json.loads(written)
    except (ValueError, RecursionError):
        return written
    return str(value.get("type")) if isinstance(value, Mapping) else written

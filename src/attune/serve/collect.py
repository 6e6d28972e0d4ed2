"""Corrected transcripts become training rows: a recording and its text, added to a manifest of the server's own.

Only with `--collect FOLDER`. The client names no path: a recording is called by the hash of its samples.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import UploadFile
from starlette.requests import Request

from attune.audio.encode import write_audio
from attune.files import split_lines, write_text
from attune.serve.problems import ApiError
from attune.serve.settings import ServerSettings
from attune.serve.uploads import decode_recording
from attune.types import SAMPLE_RATE

LONGEST_TEXT = 10_000  # characters
ONE_WRITER = threading.Lock()


async def save_row(request: Request, settings: ServerSettings) -> dict[str, object]:
    """Keep the recording of a form as FLAC, and add its row to the manifest."""
    if settings.collect is None:
        raise ApiError(403, "This server keeps no recordings. Start it with --collect FOLDER.")
    async with request.form(max_files=1, max_fields=8) as form:
        file, text, language = form.get("file"), form.get("text"), form.get("language")
        if not isinstance(file, UploadFile) or not isinstance(text, str) or not text.strip():
            raise ApiError(400, "Send a `file` and its `text`.")
        if len(text) > LONGEST_TEXT:
            raise ApiError(422, f"text: at most {LONGEST_TEXT} characters.", "text")
        samples = await asyncio.to_thread(decode_recording, await file.read(), settings.limits.audio_seconds)
    code = language if isinstance(language, str) and language.isalpha() else None
    return await asyncio.to_thread(_keep, settings.collect, samples, text.strip(), code)


def _keep(folder: Path, samples: NDArray[np.float32], text: str, language: str | None) -> dict[str, object]:
    name = hashlib.sha256(samples.tobytes()).hexdigest()[:20]
    write_audio(folder / "audio" / f"{name}.flac", samples, SAMPLE_RATE, "FLAC")
    row: dict[str, object] = {"id": name, "audio": f"audio/{name}.flac", "seconds": len(samples) / SAMPLE_RATE}
    row |= {"text": text} | ({"language": language} if language else {})
    with ONE_WRITER:
        _write(folder / "manifest.jsonl", row)
    return row


def _write(manifest: Path, row: dict[str, object]) -> None:
    """Add the row, or correct the one of the same recording."""
    lines = split_lines(manifest.read_text(encoding="utf-8")) if manifest.exists() else []
    kept = [line for line in lines if json.loads(line)["id"] != row["id"]]
    write_text(manifest, "\n".join([*kept, json.dumps(row, ensure_ascii=False)]) + "\n")

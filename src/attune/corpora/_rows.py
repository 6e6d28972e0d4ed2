"""One line of a manifest: its fields under any of their usual names, validated.

Fields that are not in NAMES and have a plain value become labels.
"""

import json
import math
import reprlib
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from attune.secrets import shown
from attune.types import SpeakerSegment

NAMES = {
    "id": ("id",),
    "audio": ("audio", "audio_filepath", "path", "wav", "file_name"),
    "start": ("start", "offset"),
    "seconds": ("seconds", "duration"),
    "text": ("text", "sentence", "transcript", "transcription"),
    "speaker": ("speaker",),
    "language": ("language",),
    "channel": ("channel",),
    "first_byte": ("first_byte",),
    "byte_count": ("byte_count",),
    "row": ("row",),
}


PROBLEM = "problem"  # the label of a row that stands for a sample of shards which cannot be used
MOST_SECONDS = 1e9  # 30 years: more is a mistake, and would overflow as a number of samples
MOST_DIGITS = 18  # of a whole number


class BadRow(Exception):
    """Why a row is invalid; the scan lists it and continues."""

    id: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of a line. `audio` as written; absent `seconds` are read from the audio header."""

    id: str
    audio: str | None = None
    start: float | None = None
    seconds: float | None = None
    text: str | None = None
    speaker: str | None = None
    language: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    channel: int | None = None
    first_byte: int | None = None
    byte_count: int | None = None
    row: int | None = None
    signals: Mapping[str, str] = field(default_factory=dict)  # further recordings by role, such as clean
    segments: tuple[SpeakerSegment, ...] = ()  # who speaks when
    phrases: tuple[str, ...] = ()  # names and terms to expect


_FIELDS = tuple(Row.__dataclass_fields__)
_JSON = json.JSONEncoder(ensure_ascii=False, default=asdict)  # a segment is a dataclass


def write_row(row: Row) -> str:
    """The row as a line of JSON, which `read_row` reads back."""
    return _JSON.encode({name: value for name in _FIELDS if (value := getattr(row, name)) not in (None, {}, ())})


def read_row(line: bytes) -> Row:
    """The row written in a line of JSON, or BadRow."""
    fields = _read_object(line)
    id = fields.get("id")
    try:
        return validate_row(_row(fields))
    except BadRow as bad:
        bad.id = id if isinstance(id, str) else None
        raise


def _row(fields: dict[str, Any]) -> Row:
    audio = _text(fields, "audio")
    start = _number(fields, "start")
    signals, segments, phrases = _signals(fields), _segments(fields), _phrases(fields)
    return Row(
        id=_text(fields, "id") or _id_from_audio(audio, start),
        audio=audio or None,
        start=start,
        seconds=_number(fields, "seconds"),
        text=_text(fields, "text"),
        speaker=_text(fields, "speaker"),
        language=_text(fields, "language"),
        channel=_whole(fields, "channel"),
        first_byte=_whole(fields, "first_byte"),
        byte_count=_whole(fields, "byte_count"),
        row=_whole(fields, "row"),
        labels=_labels(fields),
        signals=signals,
        segments=segments,
        phrases=phrases,
    )


def _read_object(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line.removeprefix(BOM_UTF8).decode())
        if b"\\u" in line:  # an escape may encode a lone surrogate, which cannot be written to a file
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not valid JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRow('not a JSON object; expected something like {"audio": "a.wav", "text": "hello"}')
    return fields


def _take(fields: dict[str, Any], field: str, names: tuple[str, ...] | None = None) -> Any:
    for name in names or NAMES[field]:
        if fields.get(name) is not None:
            return fields.pop(name)
    return None


def _text(fields: dict[str, Any], field: str) -> str | None:
    value = _take(fields, field)
    return value if value is None or isinstance(value, str) else _plain(value, field)


def _number(fields: dict[str, Any], field: str, names: tuple[str, ...] | None = None) -> float | None:
    value = _take(fields, field, names)
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) < MOST_SECONDS:
        raise BadRow(f"{field} is {reprlib.repr(value)}; expected a number of seconds")
    return number


def _whole(fields: dict[str, Any], field: str) -> int | None:
    """An integer of at least 0, else None: a corpus may have a text column of the same name."""
    value = fields.get(field)
    text = value if isinstance(value, str) else json.dumps(value)
    if (
        not isinstance(value, int | str)
        or isinstance(value, bool)
        or not (text.isdecimal() and len(text) <= MOST_DIGITS)
    ):
        return None
    del fields[field]
    return int(text)


def _signals(fields: dict[str, Any]) -> Mapping[str, str]:
    found = fields.get("signals")
    if not isinstance(found, dict):
        return {}  # a corpus may have a column of this name
    if not all(isinstance(path, str) and path for path in found.values()):
        raise BadRow(f"signals is {reprlib.repr(found)}; expected a path by role")
    return found


def _segments(fields: dict[str, Any]) -> tuple[SpeakerSegment, ...]:
    found = fields.get("segments")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return ()
    return tuple(_segment(dict(each)) for each in found)


def _segment(fields: dict[str, Any]) -> SpeakerSegment:
    start, end = (_number({name: fields.get(name)}, name, (name,)) for name in ("start", "end"))
    speaker, text = fields.get("speaker"), fields.get("text")
    if start is None or end is None or not isinstance(speaker, str) or not 0 <= start < end:
        raise BadRow(f"segment {reprlib.repr(fields)}; expected start < end in seconds, and a speaker")
    return SpeakerSegment(start, end, speaker, text if isinstance(text, str) else None)


def _phrases(fields: dict[str, Any]) -> tuple[str, ...]:
    """A list, or in a table a text with semicolons."""
    found = fields.pop("phrases", None)
    if isinstance(found, str):
        found = found.split(";")
    if found is not None and not (isinstance(found, list) and all(isinstance(each, str) for each in found)):
        raise BadRow(f"phrases is {reprlib.repr(found)}; expected a list of texts")
    return tuple(each.strip() for each in found or () if each.strip())


def _labels(rest: dict[str, Any]) -> Mapping[str, str]:
    own = rest.pop("labels") if isinstance(rest.get("labels"), dict) else {}
    other = {name: value for name, value in rest.items() if not isinstance(value, dict | list)}
    return {name: _plain(value, name) for name, value in (other | own).items() if value is not None}


def _plain(value: object, field: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise BadRow(f"{field} is {reprlib.repr(value)}; expected text or a number")
    return json.dumps(value)


def _id_from_audio(audio: str | None, start: float | None) -> str:
    if not audio:
        raise BadRow("neither id nor audio")
    return shown(audio) if start is None else f"{shown(audio)}@{start}"


def validate_row(row: Row) -> Row:
    """Return the row, or raise BadRow with what is wrong with it."""
    if row.audio is None and row.text is None:
        raise BadRow(row.labels.get(PROBLEM) or "neither audio nor text")
    if row.text is not None and not row.text.strip():
        raise BadRow("empty text")
    if row.audio and row.seconds is not None and row.seconds <= 0:
        raise BadRow(f"seconds is {row.seconds}; expected more than 0")
    if (row.first_byte is None) != (row.byte_count is None):
        raise BadRow("only one of first_byte and byte_count is given; they belong together")
    if row.start is not None and row.start < 0:
        raise BadRow(f"start is {row.start}; expected 0 or more")
    return row

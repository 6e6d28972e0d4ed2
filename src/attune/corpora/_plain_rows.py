"""The lines of a manifest that are written in the usual way, checked at the speed of a library in C.

What is unusual in any respect is left to `read_row`, which knows every case and says what is wrong.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from attune.corpora._rows import MOST_DIGITS, MOST_SECONDS

Name = Annotated[str, msgspec.Meta(min_length=1)]
Positive = Annotated[float, msgspec.Meta(gt=0, lt=MOST_SECONDS)]
Offset = Annotated[float, msgspec.Meta(ge=0, lt=MOST_SECONDS)]
Whole = Annotated[int, msgspec.Meta(ge=0, lt=10**MOST_DIGITS)]


class _Written(msgspec.Struct):
    """The fields as they may be; those of type None make a line unusual, and others cannot make it invalid."""

    id: Name
    audio: Name | None = None
    audio_filepath: Name | None = None
    path: None = None
    wav: None = None
    start: Offset | None = None
    offset: Offset | None = None
    seconds: Positive | None = None
    duration: Positive | None = None
    text: str | None = None
    sentence: None = None
    transcript: None = None
    speaker: str | None = None
    language: str | None = None
    first_byte: Whole | None = None
    byte_count: Whole | None = None
    labels: None = None
    signals: None = None
    segments: None = None
    phrases: None = None


@dataclass(frozen=True, slots=True)
class PlainRows:
    """What the scan needs of many rows, all of which have a duration; `packed` are parts of larger files."""

    ids: Sequence[str]
    audio: Sequence[str | None]
    seconds: Sequence[float]
    packed: Sequence[tuple[str, int]]  # the audio of a row, and where it ends in bytes


class PlainRow(msgspec.Struct):
    """What the scan needs of a row."""

    id: str
    audio: str | None
    seconds: float | None
    first_byte: int | None
    byte_count: int | None


_fields = msgspec.json.Decoder(_Written, strict=False)
_anything = msgspec.json.Decoder()
_TWO_OBJECTS = re.compile(r"}[ \t\r]*{")


def read_plain(line: bytes) -> PlainRow | None:
    """The row of a line of the usual kind; None says nothing about the line."""
    try:
        text = line.strip(b"\r\n").decode()
        if "\\" in text:
            _anything.decode(text)  # fields that no one asks for are not looked at below
        row = _fields.decode(text)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
    audio, seconds = row.audio or row.audio_filepath, row.seconds or row.duration
    is_usual = text.isprintable() and _is_usual(row)
    return PlainRow(row.id, audio, seconds, row.first_byte, row.byte_count) if is_usual else None


def read_plain_lines(lines: bytes, count: int) -> PlainRows | None:
    """The rows of so many lines that are all of the usual kind; None says nothing about any of them."""
    try:
        text = lines.decode()
        if "\\" in text:
            _anything.decode_lines(text)  # as above
        rows = _fields.decode_lines(text)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
    # An object may span lines, but no line has two: if there are as many of both, every line is an object.
    is_by_line = len(rows) == count and not _TWO_OBJECTS.search(text)
    if not is_by_line or not text.replace("\n", "").isprintable() or not all(map(_is_usual, rows)):
        return None
    audio = [row.audio or row.audio_filepath for row in rows]
    return PlainRows(
        ids=[row.id for row in rows],
        audio=audio,
        seconds=[row.seconds or row.duration or 0.0 for row in rows],
        packed=[
            (name, (row.first_byte or 0) + (row.byte_count or 0))
            for name, row in zip(audio, rows, strict=True)
            if row.byte_count is not None and name
        ],
    )


def _is_usual(row: _Written) -> bool:
    return (
        ((row.seconds or row.duration) is not None if row.audio or row.audio_filepath else row.text is not None)
        and (row.text is None or row.text.strip() != "")
        and (row.first_byte is None) == (row.byte_count is None)
    )

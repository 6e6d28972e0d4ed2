"""The lines of a manifest that are written in the usual way, checked at the speed of a library in C.

What is unusual in any respect is left to `read_row`, which knows every case and says what is wrong.
"""

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


class PlainRow(msgspec.Struct):
    """What the scan needs of a row."""

    id: str
    audio: str | None
    seconds: float | None
    first_byte: int | None
    byte_count: int | None


_fields = msgspec.json.Decoder(_Written, strict=False)
_anything = msgspec.json.Decoder()


def read_plain(line: bytes) -> PlainRow | None:
    """The row of a line of the usual kind; None says nothing about the line."""
    try:
        text = line.strip(b"\r\n").decode()
        if "\\" in text:
            _anything.decode(text)  # fields that no one asks for are not looked at below
        row = _fields.decode(text)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None
    audio, seconds = row.audio or row.audio_filepath, row.seconds or row.duration
    is_usual = (
        text.isprintable()
        and (bool(seconds) if audio else row.text is not None)
        and (row.text is None or row.text.strip() != "")
        and (row.first_byte is None) == (row.byte_count is None)
    )
    return PlainRow(row.id, audio, seconds, row.first_byte, row.byte_count) if is_usual else None

"""SentencePiece's model files are protocol buffers: the fields of one, and how its numbers are written."""

from collections.abc import Iterator

_FOUR_BYTES, _EIGHT_BYTES, _COUNTED = 5, 1, 2  # kinds of fields; others are numbers


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each field's number, all of its bytes, and those of its content."""
    start = 0
    while start < len(message):
        tag, place = _number(message, start)
        kind = tag & 7
        if kind == _COUNTED:
            size, place = _number(message, place)
        else:
            size = {_FOUR_BYTES: 4, _EIGHT_BYTES: 8}.get(kind) or _number(message, place)[1] - place
        yield tag >> 3, message[start : place + size], message[place : place + size]
        start = place + size


def content_of(message: bytes, wanted: int) -> bytes:
    """The content of a field, of which the last counts; nothing where there is none."""
    return next((content for number, _, content in reversed(list(fields(message))) if number == wanted), b"")


def written(value: int) -> bytes:
    """A number, seven bits in a byte."""
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def _number(message: bytes, place: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = shift = 0
    while message[place] & 128:
        value, shift, place = value | (message[place] & 127) << shift, shift + 7, place + 1
    return value | message[place] << shift, place + 1

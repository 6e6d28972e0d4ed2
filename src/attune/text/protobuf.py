"""Reading the fields of a protocol buffer, which SentencePiece models are, and encoding its varints."""

from collections.abc import Iterator

_FIXED32, _FIXED64, _LENGTH_DELIMITED = 5, 1, 2  # wire types; the others are varints


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each field's number, all of its bytes, and those of its content."""
    start = 0
    while start < len(message):
        tag, place = _read_varint(message, start)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            size, place = _read_varint(message, place)
        else:
            size = {_FIXED32: 4, _FIXED64: 8}.get(kind) or _read_varint(message, place)[1] - place
        yield tag >> 3, message[start : place + size], message[place : place + size]
        start = place + size


def content_of(message: bytes, wanted: int) -> bytes:
    """The content of a field, the last one if it is repeated; empty if it is absent."""
    return next((content for number, _, content in reversed(list(fields(message))) if number == wanted), b"")


def encode_varint(value: int) -> bytes:
    """A number as a varint: seven bits per byte."""
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    """The varint at `place`, and the position after it."""
    value = shift = 0
    while message[place] & 128:
        value, shift, place = value | (message[place] & 127) << shift, shift + 7, place + 1
    return value | message[place] << shift, place + 1

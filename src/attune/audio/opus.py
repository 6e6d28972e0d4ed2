"""Ogg Opus at 48 kHz, the codec's own rate, whatever the recording was made from.

libsndfile decodes at the rate that the head names as that of the original, with a resampler of the codec's: up to 7e-4
from the samples that FFmpeg, and with it other toolkits, gets. So the head is read as if it named 48 kHz.
"""

from pathlib import Path

RATE = 48_000
START = 64  # bytes, which hold the page with the head: 47, or some more for many channels
CRC_AT, SEGMENTS_AT, HEADER = 22, 26, 27  # in a page of Ogg
RATE_AT = 12  # in the head of Opus
POLYNOMIAL = 0x04C11DB7  # of Ogg's checksums


def at_full_rate(path: Path | str, content: bytes | None) -> bytes | None:
    """The recording with a head that names 48 kHz; None where it is no Opus, or names that already."""
    if content is None:
        with Path(path).open("rb") as file:
            page = _head_page(file.read(START))
            return None if page is None else page + Path(path).read_bytes()[len(page) :]
    page = _head_page(content[:START])
    return None if page is None else page + content[len(page) :]


def _head_page(start: bytes) -> bytes | None:
    """The first page, naming 48 kHz; None where it is something else, or damaged."""
    if start[:4] != b"OggS" or len(start) < START:
        return None
    first = HEADER + start[SEGMENTS_AT]
    page = bytearray(start[: first + sum(start[HEADER:first])])
    rate = slice(first + RATE_AT, first + RATE_AT + 4)
    is_whole = page[CRC_AT : CRC_AT + 4] == _checksum(page)
    if page[first : first + 8] != b"OpusHead" or not is_whole or page[rate] == RATE.to_bytes(4, "little"):
        return None
    page[rate] = RATE.to_bytes(4, "little")
    page[CRC_AT : CRC_AT + 4] = _checksum(page)
    return bytes(page)


def _checksum(page: bytearray) -> bytes:
    """Ogg's checksum of a page, which is computed with zeros in its own place."""
    value = 0
    for byte in page[:CRC_AT] + bytes(4) + page[CRC_AT + 4 :]:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1) ^ (POLYNOMIAL if value & 0x80000000 else 0)
            value &= 0xFFFFFFFF
    return value.to_bytes(4, "little")

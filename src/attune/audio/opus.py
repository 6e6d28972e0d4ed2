"""The rate at which an Opus file is decoded.

libsndfile decodes at the rate of the recording that was encoded. That is right for speech in SILK, which is synthesized
at 8, 12 or 16 kHz: another rate would be resampled by the decoder, each decoder in its own way. All else is synthesized
at 48 kHz, and libopus thins it out to a lower rate with hardly a filter: it is decoded at 48 kHz and resampled by us.
"""

from collections.abc import Iterator
from typing import BinaryIO

import soundfile

FULL_RATE = 48_000
FIRST_CELT = 12  # configurations below are SILK alone (RFC 6716, table 2)

SET_ORIGINAL_SAMPLERATE = 0x1500  # commands of libsndfile that soundfile has no method for
GET_CURRENT_SF_INFO = 0x1002


def is_silk(stream: BinaryIO) -> bool:
    """Whether an Ogg Opus file begins with speech in SILK; one that is damaged does not."""
    packets = _packet_heads(stream)
    next(packets, b"")  # OpusHead
    next(packets, b"")  # OpusTags
    first = next(packets, b"")
    return bool(first) and first[0] >> 3 < FIRST_CELT


def decode_at_full_rate(file: soundfile.SoundFile) -> None:
    """Have a file that was just opened decoded at 48 kHz."""
    rate = soundfile._ffi.new("int *", FULL_RATE)
    soundfile._snd.sf_command(file._file, SET_ORIGINAL_SAMPLERATE, rate, soundfile._ffi.sizeof("int"))
    soundfile._snd.sf_command(file._file, GET_CURRENT_SF_INFO, file._info, soundfile._ffi.sizeof("SF_INFO"))


def _packet_heads(stream: BinaryIO) -> Iterator[bytes]:
    """The first byte of each packet of the Opus stream; a page is a header, the sizes of its segments, and these."""
    serial, is_new = None, True
    while (header := stream.read(27))[:4] == b"OggS" and len(header) == 27:
        sizes = stream.read(header[26])
        body = stream.read(sum(sizes))
        if serial is None and body.startswith(b"OpusHead"):
            serial = header[14:18]
        if header[14:18] != serial:
            continue
        position = 0
        for size in sizes:
            if is_new:
                yield body[position : position + 1]
            position += size
            is_new = size < 255  # a full segment goes on in the next

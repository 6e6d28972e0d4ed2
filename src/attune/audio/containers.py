"""Recordings that libsndfile cannot read, m4a, mp4, webm, aac, wma and amr, decoded by FFmpeg through PyAV.

A file is recognized by its first bytes and opened as that format alone, so that no playlist or script is ever followed.
A slice is decoded from the beginning: codecs carry state from frame to frame, and after a seek the first samples would
be others than in the whole recording.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attune.errors import DataError

Samples = npt.NDArray[np.float32]

SUFFIXES = (".m4a", ".mp4", ".mov", ".3gp", ".webm", ".mkv", ".mka", ".aac", ".wma", ".amr")
ALL_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".sph", ".aiff", ".au", *SUFFIXES)  # and libsndfile's
SAMPLE_TYPES = {"u8": "u1", "s16": "i2", "s32": "i4", "s64": "i8", "flt": "f4", "dbl": "f8"}  # FFmpeg's names
HEAD_BYTES = 12
SLACK_SECONDS = 0.1  # a header may count the codec's delay


@dataclass(frozen=True, slots=True)
class Container:
    """A file format: its name for people, and FFmpeg's."""

    name: str
    format: str


def recognize(head: bytes) -> Container | None:
    """The container that a file with these first bytes is."""
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide"):
        return Container("MP4", "mov")
    if head[:4] == b"\x1aE\xdf\xa3":
        return Container("WebM or Matroska", "matroska")
    if head[:8] == b"0&\xb2u\x8ef\xcf\x11":
        return Container("WMA", "asf")
    if head[:5] == b"#!AMR":
        return Container("AMR", "amr")
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return Container("AAC", "aac")
    return None


def recognize_file(path: Path | str, content: bytes | None) -> Container | None:
    """The container of a recording: a file, or `content`."""
    if content is not None:
        return recognize(content[:HEAD_BYTES])
    with Path(path).open("rb") as file:
        return recognize(file.read(HEAD_BYTES))


class ContainerReader:
    """An open recording; the number of its samples is known when all of it is decoded."""

    def __init__(self, path: Path | str, container: Any, is_complete_at: float | None) -> None:
        self.path = path
        self.rate = int(container.streams.audio[0].codec_context.sample_rate)
        self._container = container
        self._seconds = is_complete_at

    def pieces(self) -> Iterator[Samples]:
        """The samples in their order, (T, channels); a file that ends early is a DataError after the last."""
        total, channels = 0, 0
        for frame, surplus in self._frames():
            channels = channels or frame.layout.nb_channels
            if frame.sample_rate != self.rate or frame.layout.nb_channels != channels:
                raise DataError(
                    f"{self.path} changes its sample rate or channels in the middle. Convert it to WAV or FLAC."
                )
            piece = _floats(frame)[surplus:]
            total += len(piece)
            yield piece
        if self._seconds is not None and total / self.rate < self._seconds - SLACK_SECONDS:
            raise _truncated(self.path, f"decoded {total / self.rate:.2f} s of {self._seconds:.2f} s")

    def _frames(self) -> Iterator[tuple[Any, int]]:
        """The decoded frames, each with how many of its first samples are still to be left out."""
        stream, surplus = self._container.streams.audio[0], None
        for packet in self._container.demux(stream):
            if surplus is None:
                is_matroska = self._container.format.name.startswith("matroska")
                surplus = _surplus(stream.codec_context, packet) if is_matroska else 0
            for frame in packet.decode():
                yield frame, min(surplus, frame.samples)
                surplus -= min(surplus, frame.samples)


@contextmanager
def opened(path: Path | str, content: bytes | None, kind: Container) -> Iterator[ContainerReader]:
    """A recording to be decoded; FFmpeg's errors become DataErrors."""
    try:
        import av
    except ModuleNotFoundError as error:
        raise DataError(f"{path} is {kind.name}, which needs PyAV. Run: pip install 'attune-speech[av]'") from error
    with BytesIO(content) if content is not None else Path(path).open("rb") as file:
        try:
            with av.open(file, format=kind.format, metadata_errors="ignore") as container:
                if not container.streams.audio:
                    raise DataError(f"{path} has no audio track. Remove its row.")
                codec = container.streams.audio[0].codec_context
                if codec is None or not codec.sample_rate:
                    raise DataError(
                        f"{path} has audio that is encrypted, damaged or of an unknown codec. Convert it to WAV or "
                        "FLAC, or remove its row."
                    )
                yield ContainerReader(path, container, _declared_seconds(container, kind, av.time_base))
        except (av.FFmpegError, EOFError) as error:
            raise _truncated(path, getattr(error, "strerror", None) or str(error)) from error


def _declared_seconds(container: Any, kind: Container, time_base: int) -> float | None:
    """How long the audio says it is; None where a header gives an estimate, or the length of a video beside it."""
    stream = container.streams.audio[0]
    if kind.format == "mov" and stream.duration:
        return float(stream.duration * stream.time_base)
    if kind.format == "matroska" and len(container.streams) == 1 and container.duration:
        return float(container.duration / time_base)
    return None


def _surplus(codec: Any, first: Any) -> int:
    """Samples before an Opus recording begins that its container does not tell FFmpeg to skip.

    The head of the codec is right. Some versions of FFmpeg write a shorter delay beside it for audio below 48 kHz.
    """
    head = codec.extradata or b""
    if codec.name != "opus" or head[:8] != b"OpusHead":
        return 0
    skipped = bytes(first.get_sidedata("skip_samples"))[:4] if first.has_sidedata("skip_samples") else b""
    return max(0, int.from_bytes(head[10:12], "little") - int.from_bytes(skipped, "little"))


def _floats(frame: Any) -> Samples:
    """A frame as (T, channels) between -1 and 1."""
    channels = frame.layout.nb_channels
    values = _planes(frame, channels) if frame.format.is_planar else frame.to_ndarray().reshape(-1, channels)
    if values.dtype == np.uint8:
        values = values.astype(np.float32) / 128 - 1
    elif np.issubdtype(values.dtype, np.integer):
        values = values / np.float32(-float(np.iinfo(values.dtype).min))
    return np.ascontiguousarray(values, np.float32)


def _planes(frame: Any, channels: int) -> npt.NDArray[Any]:
    """The samples of a frame with a plane for each channel, (T, channels).

    PyAV takes what lies behind the pointers to eight planes or more for others, and ends the process on reading those.
    """
    dtype = SAMPLE_TYPES[frame.format.packed.name]
    return np.stack([np.frombuffer(plane, dtype, frame.samples) for plane in frame.planes[:channels]], axis=1)


def _truncated(path: Path | str, detail: str) -> DataError:
    return DataError(f"{path} is corrupt or truncated: {detail}. Download it again, or remove its row.")

"""Audio files to samples: mono float32 at one rate, from any format, rate and channel count.

libsndfile reads wav, flac, mp3, ogg and opus; m4a, mp4, webm, aac, wma and amr are decoded by PyAV. Samples are
complete and finite: a truncated file, a slice beyond the end or a NaN is a DataError. A header is not believed: a file
cannot hold more samples than its bytes allow, and memory follows what is decoded, not what is claimed.
"""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from attune.audio import containers
from attune.audio.containers import Container
from attune.audio.opus import FULL_RATE, decode_at_full_rate, is_silk
from attune.audio.remarks import decoder_remarks, show
from attune.errors import DataError
from attune.types import SAMPLE_RATE, Utterance

Samples = npt.NDArray[np.float32]

# Manifests round their times and some headers only estimate a length; more than this missing is an error.
SLACK_SECONDS = 0.1

RATES = range(1000, 1_000_001)  # Hz; outside, the header is damaged, and resampling would multiply the samples
MOST_PER_BYTE = 500  # samples; digital silence in FLAC or Opus comes to 350
SMALL = 1 << 26  # samples; below this their number is not checked
PIECE = 1 << 22  # samples decoded at once


def read_audio(
    path: Path | str,
    start: float | None = None,
    seconds: float | None = None,
    rate: int = SAMPLE_RATE,
    channel: int | None = None,
    content: bytes | None = None,
) -> Samples:
    """The samples of a file, or of `seconds` from `start`; channels are averaged unless `channel` selects one.

    `content` is the encoded recording, where it is not the whole file at `path`.
    """
    try:
        with _opened(path, content) as file:
            frames, own_rate = _read_slice(file, path, start or 0.0, seconds), file.samplerate
    except _NotLibsndfile as unreadable:
        frames, own_rate = _read_container(path, start or 0.0, seconds, content, _container(path, content, unreadable))
    samples = _mono(frames, channel, path)
    if not np.isfinite(samples).all():
        raise DataError(f"{path} has NaN or infinite samples. Recreate the file, or remove its row.")
    samples = resample(samples, own_rate, rate)
    if not len(samples):
        raise _without_samples(path)
    return samples


def _mono(frames: Samples, channel: int | None, path: Path | str) -> Samples:
    channels = frames.shape[1]
    if channel is None:
        mean: Samples = frames[:, 0] if channels == 1 else frames.mean(axis=1)
        return mean
    if not 0 <= channel < channels:
        raise DataError(
            f"{path} has {channels} channels (0 to {channels - 1}), no channel {channel}. Correct `channel` of the row."
        )
    return np.ascontiguousarray(frames[:, channel])


def resample(samples: Samples, from_rate: int, to_rate: int) -> Samples:
    """Resample to another sampling rate."""
    if from_rate == to_rate:
        return samples
    resampled: Samples = soxr.resample(samples, from_rate, to_rate, quality="HQ")
    return resampled


def read_utterance(utterance: Utterance, rate: int = SAMPLE_RATE, content: bytes | None = None) -> Samples:
    """The samples of one manifest row: the whole recording, or a slice if the row has a `start`.

    `content` is the encoded recording if it is inside another file; `attune.sources.content_of` reads it.
    """
    if utterance.audio is None:
        raise DataError(f"Utterance {utterance.id!r} has no audio. Add an `audio` path to its row.")
    if utterance.start is None:
        return read_audio(utterance.audio, rate=rate, channel=utterance.channel, content=content)
    return read_audio(utterance.audio, utterance.start, utterance.seconds, rate, utterance.channel, content)


def read_signal(utterance: Utterance, role: str, rate: int = SAMPLE_RATE) -> Samples:
    """The samples of a further recording of the utterance, such as its `clean` speech, over the same time."""
    if role not in utterance.signals:
        raise DataError(
            f"{utterance.where}: utterance {utterance.id!r} has no signal {role!r}. "
            f'Add to its row "signals": {{"{role}": "PATH"}}.'
        )
    return read_utterance(replace(utterance, audio=utterance.signals[role], first_byte=None, row=None), rate)


def audio_seconds(path: Path | str, content: bytes | None = None, stop_after: float = math.inf) -> float:
    """The duration of a recording from its header; what libsndfile cannot read is decoded and counted.

    Counting ends once there are more than `stop_after` seconds.
    """
    try:
        with _opened(path, content) as file:
            return float(file.frames / file.samplerate)
    except _NotLibsndfile as unreadable:
        with containers.opened(path, content, _container(path, content, unreadable)) as recording:
            samples = 0
            for piece in _bounded(recording, path, content):
                samples += len(piece)
                if samples > stop_after * recording.rate:
                    break
            return samples / recording.rate


class _NotLibsndfile(DataError):
    """A file that libsndfile cannot open; as a message, that it is not audio."""


def _container(path: Path | str, content: bytes | None, unreadable: DataError) -> Container:
    """The other format that the file is, or the error that it is none."""
    found = containers.recognize_file(path, content)
    if found is None:
        raise unreadable
    return found


def _read_container(
    path: Path | str, start: float, seconds: float | None, content: bytes | None, kind: Container
) -> tuple[Samples, int]:
    """The frames of a slice, cut out of the whole while that is decoded, and their rate."""
    kept, position = [], 0
    with containers.opened(path, content, kind) as recording:
        first = round(start * recording.rate)
        end = None if seconds is None else first + round(seconds * recording.rate)
        for piece in _bounded(recording, path, content):
            kept.append(piece[max(0, first - position) : None if end is None else max(0, end - position)])
            position += len(piece)
            if end is not None and position >= end:
                break
        rate = recording.rate
    if position == 0:
        raise _without_samples(path)
    if not 0 <= first < position or (end is not None and not first < end <= position + round(SLACK_SECONDS * rate)):
        raise _outside(path, position / rate, start, start + (seconds or 0.0))
    return np.concatenate(kept), rate


def _bounded(recording: containers.ContainerReader, path: Path | str, content: bytes | None) -> Iterator[Samples]:
    """The decoded pieces, as many as the file's bytes allow."""
    size = _size(Path(path)) if content is None else len(content)
    total = 0
    for piece in recording.pieces():
        total += piece.size
        if recording.rate not in RATES or total > max(SMALL, MOST_PER_BYTE * size):
            raise _damaged(path, f" ({total:,} samples at {recording.rate:,} Hz in {size:,} bytes)")
        yield piece


@contextmanager
def _opened(path: Path | str, content: bytes | None) -> Iterator[soundfile.SoundFile]:
    """An open recording; errors of libsndfile become DataErrors."""
    size = _size(Path(path)) if content is None else len(content)
    try:
        file = soundfile.SoundFile(os.fsencode(path) if content is None else _Content(content))
    except (soundfile.SoundFileError, TypeError) as error:  # TypeError: a headerless .raw file
        raise _NotLibsndfile(str(_damaged(path))) from error
    with file:
        if file.subtype == "OPUS" and file.samplerate < FULL_RATE and not _begins_with_silk(path, content):
            decode_at_full_rate(file)
        if _is_cut_off(file.extra_info):
            raise _truncated(path, "the file ends early")
        if file.frames == 0:
            raise _without_samples(path)
        if file.samplerate not in RATES or file.frames * file.channels > max(SMALL, MOST_PER_BYTE * size):
            claim = f"{file.frames:,} samples at {file.samplerate:,} Hz in {size:,} bytes"
            raise _damaged(path, f" ({claim})")
        try:
            yield file
        except soundfile.SoundFileError as error:
            raise _truncated(path, str(error)) from error


class _Content(BytesIO):
    """Encoded bytes in which a damaged header may seek before the first; what is raised there would be printed."""

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(max(offset, 0) if whence == os.SEEK_SET else offset, whence)


def _begins_with_silk(path: Path | str, content: bytes | None) -> bool:
    with Path(path).open("rb") if content is None else BytesIO(content) as stream:
        return is_silk(stream)


def _size(path: Path) -> int:
    try:
        is_file, size = path.is_file(), path.stat().st_size
    except (OSError, ValueError):  # ValueError: a path that no system could have
        is_file, size = False, 0
    if not is_file:
        raise DataError(f"{path} does not exist, or is not a file. Audio paths are relative to the manifest's folder.")
    if size == 0:
        raise DataError(f"{path} is empty (0 bytes). Download or recreate the file.")
    return size


def _is_cut_off(log: str) -> bool:
    """Whether libsndfile silently accepted a truncated file."""
    chunk = re.search(r"^data : (\d+) \(should be (\d+)\)", log, re.MULTILINE)
    if chunk:
        declared, actual = int(chunk[1]), int(chunk[2])
        # Writers to a pipe cannot know the size and declare the maximum: such a file is complete.
        return actual < declared < 0x7FFF_0000
    return "Junk after the last page" in log  # Ogg: half a page at the end


def _read_slice(file: soundfile.SoundFile, path: Path | str, start: float, seconds: float | None) -> Samples:
    rate = file.samplerate
    slack = round(SLACK_SECONDS * rate)
    first = round(start * rate)
    wanted = file.frames - first if seconds is None else round(seconds * rate)
    if not 0 <= first < file.frames or wanted <= 0 or first + wanted > file.frames + slack:
        raise _outside(path, file.frames / rate, start, start + wanted / rate)
    frames = _read_mp3(file, first, wanted) if file.format == "MP3" else _read_from(file, first, wanted)
    if len(frames) < min(wanted, file.frames - first) - slack or len(frames) == 0:
        raise _truncated(path, f"decoded {len(frames) / rate:.2f} s of {wanted / rate:.2f} s")
    return frames


def _read_mp3(file: soundfile.SoundFile, first: int, wanted: int) -> Samples:
    """The frames from `first` on. One depends on earlier ones, and libsndfile does not decode those after a seek."""
    lead = min(first, file.samplerate)
    with decoder_remarks() as remarks:
        frames = _read_from(file, first - lead, lead + wanted)[lead:]
    if remarks and lead:
        # At low rates the decoder misses, and names, what came before the lead; of no consequence for what follows. How
        # many remarks are about the lead is found by reading it alone. (Not in two parts: soundfile seeks after each.)
        with decoder_remarks() as expected:
            _read_from(file, first - lead, lead)
        remarks = remarks[len(expected) :]
    show(remarks)
    return frames


def _read_from(file: soundfile.SoundFile, first: int, count: int) -> Samples:
    file.seek(first)
    return _read_frames(file, count)


def _read_frames(file: soundfile.SoundFile, count: int) -> Samples:
    """So many frames, or as many as there are: (T, channels)."""
    pieces: list[Samples] = []
    most = max(1, PIECE // file.channels)
    while count > 0:
        piece: Samples = file.read(min(count, most), dtype="float32", always_2d=True)
        pieces.append(piece)
        count = count - len(piece) if len(piece) == min(count, most) else 0
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _damaged(path: Path | str, detail: str = "") -> DataError:
    return DataError(
        f"{path} is not audio, or its header is damaged{detail}. "
        "Expected wav, flac, mp3, ogg, opus, m4a, mp4, webm, aac, wma or amr: "
        "convert it, download it again, or remove its row."
    )


def _outside(path: Path | str, seconds: float, start: float, end: float) -> DataError:
    return DataError(
        f"{path} is {seconds:.2f} s long; the row asks for "
        f"{start:.2f} to {end:.2f} s. Correct `start` and `seconds` of the row."
    )


def _without_samples(path: Path | str) -> DataError:
    return DataError(f"{path} has no samples. Recreate the file, or remove its row.")


def _truncated(path: Path | str, detail: str) -> DataError:
    return DataError(f"{path} is corrupt or truncated: {detail}. Download it again, or remove its row.")

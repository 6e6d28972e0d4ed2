import math
import struct
import tracemalloc
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import soundfile

from attune.audio.decode import audio_seconds, read_audio, read_utterance
from attune.errors import DataError
from attune.types import Utterance

FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
}


def tone(seconds=3.0, rate=16000, pitch=220.0):
    time = np.arange(round(seconds * rate)) / rate
    # It swells and fades, so that no slice is like another, and codecs have no edge to smear.
    return (0.5 * np.sin(2 * np.pi * pitch * time) * np.sin(np.pi * (time / seconds) ** 2)).astype(np.float32)


def noise(seconds=4.0, rate=16000):
    return np.random.default_rng(0).uniform(-0.5, 0.5, round(seconds * rate)).astype(np.float32)


def write(path: Path, samples, rate=16000):
    kind, subtype = FORMATS[path.suffix[1:]]
    soundfile.write(path, samples, rate, format=kind, subtype=subtype)
    return path


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_tone_that_was_written(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", tone())
    samples = read_audio(path)
    assert samples.dtype == np.float32 and samples.shape == (48000,)
    assert np.abs(samples - tone()).max() < 0.05
    assert audio_seconds(path) == 3.0


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("start", [0.0, 0.5, 1.2345])
def test_a_slice_is_that_slice_of_the_whole(tmp_path, kind, start):
    path = write(tmp_path / f"a.{kind}", tone())
    first = round(start * 16000)
    np.testing.assert_allclose(read_audio(path, start, 1.0), read_audio(path)[first : first + 16000], atol=1e-6)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_any_rate_and_channel_count_becomes_mono_16_khz(tmp_path, rate, channels):
    path = write(tmp_path / "a.flac", np.tile(tone(rate=rate)[:, None], channels), rate)
    samples = read_audio(path)
    assert samples.shape == (48000,) and samples.dtype == np.float32
    assert np.abs(samples - tone())[800:-800].max() < 1e-3


def test_channels_are_averaged(tmp_path):
    path = write(tmp_path / "a.wav", np.stack([tone(), 0 * tone()], axis=1))
    np.testing.assert_allclose(read_audio(path), tone() / 2, atol=1e-4)


def test_a_slice_at_another_rate_has_the_length_asked_for(tmp_path):
    path = write(tmp_path / "a.flac", tone(rate=44100), 44100)
    assert read_audio(path, 1.0, 0.5).shape == (8000,)
    assert read_audio(path, 1.0).shape == (32000,)
    assert read_audio(path, 1.0, 0.5, rate=44100).shape == (22050,)


def test_a_slice_that_a_rounded_manifest_puts_just_beyond_the_end_is_cut_there(tmp_path):
    path = write(tmp_path / "a.wav", tone())
    assert read_audio(path, 2.0, 1.05).shape == (16000,)


@pytest.mark.parametrize(
    ("start", "seconds"), [(2.0, 1.2), (3.0, 0.5), (3.0, None), (9.0, 1.0), (-1.0, 1.0), (0.0, 0.0)]
)
@pytest.mark.parametrize("kind", ["wav", "mp3", "opus"])
def test_a_slice_that_the_file_does_not_hold_is_refused(tmp_path, kind, start, seconds):
    path = write(tmp_path / f"a.{kind}", tone())
    with pytest.raises(DataError, match=r"a\.\w+ is 3\.00 s long"):
        read_audio(path, start, seconds)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("part", [0.5, 0.8])
def test_a_truncated_file_is_named(tmp_path, kind, part):
    path = write(tmp_path / f"a.{kind}", noise())
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(DataError, match=rf"a\.{kind} is corrupt or truncated"):
        read_audio(path)


@pytest.mark.parametrize("kind", ["flac", "mp3", "ogg", "opus"])
def test_a_file_with_a_hole_in_its_middle_is_named(tmp_path, kind):
    path = write(tmp_path / f"a.{kind}", noise())
    content = bytearray(path.read_bytes())
    start, end = len(content) // 2, len(content) * 3 // 4
    content[start:end] = bytes(end - start)
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=rf"a\.{kind} is corrupt or truncated"):
        read_audio(path)


@pytest.mark.parametrize("declared", [0xFFFF_FFFF, 0x7FFF_FFFF])
def test_a_wav_written_to_a_pipe_without_knowing_its_size_is_whole(tmp_path, declared):
    path = write(tmp_path / "a.wav", tone())
    content = bytearray(path.read_bytes())
    size = content.index(b"data") + 4
    content[size : size + 4] = struct.pack("<I", declared)
    path.write_bytes(bytes(content))
    assert read_audio(path).shape == (48000,)


@pytest.mark.parametrize("read", [read_audio, audio_seconds])
@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3", "a.ogg", "a.opus", "a.raw", "a"])
def test_what_is_not_audio_is_refused(tmp_path, read, name):
    path = tmp_path / name
    with pytest.raises(DataError, match="does not exist"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        read(path)
    path.write_text("These are words, not sounds.\n" * 50)
    with pytest.raises(DataError, match=f"{name} is not audio"):
        read(path)


def test_a_folder_is_not_audio(tmp_path):
    with pytest.raises(DataError, match="not a file"):
        read_audio(tmp_path)


def test_a_file_without_samples_is_refused(tmp_path):
    path = write(tmp_path / "a.wav", np.zeros(0, np.float32))
    with pytest.raises(DataError, match="no samples"):
        read_audio(path)
    write(path, np.ones(1, np.float32), 48000)
    with pytest.raises(DataError, match="no samples"):
        read_audio(path)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_samples_that_are_not_numbers_are_refused(tmp_path, value):
    samples = tone()
    samples[1000] = value
    soundfile.write(tmp_path / "a.wav", samples, 16000, subtype="FLOAT")
    with pytest.raises(DataError, match=r"a\.wav has NaN"):
        read_audio(tmp_path / "a.wav")
    assert read_audio(tmp_path / "a.wav", 1.0, 1.0).shape == (16000,)


def test_an_utterance_is_the_whole_file_unless_it_has_a_start(tmp_path):
    path = write(tmp_path / "a.wav", tone())
    assert read_utterance(Utterance("whole", 2.9, path)).shape == (48000,)
    assert read_utterance(Utterance("slice", 0.5, path, start=1.0)).shape == (8000,)
    with pytest.raises(DataError, match="'text' has no audio"):
        read_utterance(Utterance("text", 0.0))


def test_one_channel_is_taken_or_the_lack_of_it_reported(tmp_path):
    both = np.stack([np.full(1600, 0.1), np.full(1600, 0.3)], axis=1).astype(np.float32)
    soundfile.write(tmp_path / "both.wav", both, 16000, subtype="FLOAT")
    assert np.allclose(read_audio(tmp_path / "both.wav", channel=1), 0.3)
    assert np.allclose(read_audio(tmp_path / "both.wav"), 0.2)
    with pytest.raises(DataError, match=r"has 2 channels \(0 to 1\), no channel 2"):
        read_audio(tmp_path / "both.wav", channel=2)


def test_a_recording_is_read_from_its_bytes(tmp_path):
    soundfile.write(tmp_path / "a.flac", np.full(1600, 0.25), 16000)
    content = (tmp_path / "a.flac").read_bytes()
    assert (read_audio("elsewhere.tar", content=content) == read_audio(tmp_path / "a.flac")).all()
    assert audio_seconds("elsewhere.tar", content) == 0.1
    with pytest.raises(DataError, match=r"elsewhere\.tar is not audio"):
        read_audio("elsewhere.tar", content=content[20:])


def flac_that_claims(path: Path, frames: int, rate: int = 16000) -> Path:
    """A FLAC file whose STREAMINFO has other numbers than its frames."""
    content = bytearray(write(path, tone(0.5)).read_bytes())
    packed = int.from_bytes(content[18:26], "big")
    packed = packed & ~((1 << 36) - 1) | frames
    packed = packed & ((1 << 44) - 1) | rate << 44
    content[18:26] = packed.to_bytes(8, "big")
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("read", [read_audio, audio_seconds])
def test_a_header_that_claims_more_samples_than_its_file_can_hold_is_refused(tmp_path, read):
    path = flac_that_claims(tmp_path / "a.flac", frames=(1 << 36) - 1)
    with pytest.raises(DataError, match=r"a\.flac is not audio, or its header is damaged \(68,719,476,735 samples at"):
        read(path)


def test_memory_follows_what_is_decoded_not_what_is_claimed(tmp_path):
    path = flac_that_claims(tmp_path / "a.flac", frames=1 << 26)
    tracemalloc.start()
    with pytest.raises(DataError, match="is corrupt or truncated"):
        read_audio(path)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("read", [read_audio, audio_seconds])
@pytest.mark.parametrize("rate", [1, 999, 1_000_001, 0x7FFF_FFFF])
def test_a_rate_that_no_recording_has_is_refused(tmp_path, read, rate):
    content = bytearray(write(tmp_path / "a.wav", tone(0.5)).read_bytes())
    content[24:28] = rate.to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataError, match=f"header is damaged .*at {rate:,} Hz"):
        read(tmp_path / "a.wav")


def test_a_long_recording_is_read_in_pieces_and_whole(tmp_path, monkeypatch):
    path = write(tmp_path / "a.wav", noise(1.0))
    whole = read_audio(path)
    monkeypatch.setattr("attune.audio.decode.PIECE", 1000)
    assert (read_audio(path) == whole).all()


def test_bytes_that_end_in_their_header_are_refused_and_nothing_is_printed(capfd):
    """libsndfile seeks before their first byte."""
    whole = BytesIO()
    soundfile.write(whole, np.zeros(100), 16000, format="AIFF")
    with pytest.raises(DataError, match="is not audio"):
        read_audio("in a shard", content=whole.getvalue()[:40])
    assert capfd.readouterr() == ("", "")


def test_a_path_that_no_system_could_have_is_refused():
    with pytest.raises(DataError, match="does not exist"):
        read_audio("a\0b.wav")
    with pytest.raises(DataError, match="does not exist"):
        read_audio("a" * 5000)

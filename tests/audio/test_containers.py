"""m4a, mp4, webm, aac, wma and amr: the samples that FFmpeg decodes, whole or as a slice, from files and from bytes."""

import ctypes.util
import shutil
import subprocess
import sys
from io import BytesIO

import numpy as np
import pytest
import soundfile
import soxr

from attune.audio.containers import SUFFIXES, recognize
from attune.audio.decode import audio_seconds, read_audio
from attune.audio.opus import is_silk
from attune.corpora import open_manifest, prepare_split
from attune.corpora import shards as shards_corpus
from attune.corpora._layout import CorpusPaths
from attune.errors import DataError
from attune.sources import content_of

from miniatures import put

av = pytest.importorskip("av")

# How each is encoded: codec, rate, sample format, and what FFmpeg calls the container.
KINDS = {
    "m4a": ("aac", 44100, "fltp", "ipod"),
    "mp4": ("aac", 44100, "fltp", "mp4"),
    "webm": ("libopus", 48000, "flt", "webm"),
    "mka": ("pcm_s16le", 16000, "s16", "matroska"),
    "aac": ("aac", 44100, "fltp", "adts"),
    "wma": ("wmav2", 44100, "fltp", "asf"),
    "amr": ("libopencore_amrnb", 8000, "s16", "amr"),
}
RUNS_FFMPEG = shutil.which("ffmpeg")
LIBOPUS = ctypes.util.find_library("opus")


def tone(rate, seconds=2.0):
    time = np.arange(round(seconds * rate)) / rate
    return (0.4 * np.sin(2 * np.pi * (200 + 150 * time) * time)).astype(np.float32)


def write(path, has_video=False):
    """A tone in the container that the suffix names."""
    codec, rate, sample_format, container = KINDS[path.suffix[1:]]
    with av.open(str(path), "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate, layout="mono")
        stream.bit_rate = 12_200 if codec == "libopencore_amrnb" else 64_000
        video = file.add_stream("mpeg4", rate=10, width=32, height=32, pix_fmt="yuv420p") if has_video else None
        samples = tone(rate)[None]
        samples = (samples * 32767).astype(np.int16) if sample_format == "s16" else samples
        frame = av.AudioFrame.from_ndarray(samples, format=sample_format, layout="mono")
        frame.sample_rate = rate
        packets = [*stream.encode(frame), *stream.encode(None)]
        if video:
            black = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8))
            packets += [*video.encode(black), *video.encode(None)]
        file.mux(packets)
    return path


def write_aac(path, layout, container="adts"):
    """A second of a tone in every channel of a layout, in AAC, whose frames have a plane for each."""
    with av.open(str(path), "w", format=container) as file:
        stream = file.add_stream("aac", rate=48000, layout=layout)
        samples = np.repeat(tone(48000, 1.0), stream.codec_context.layout.nb_channels)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="flt", layout=layout)
        frame.sample_rate = 48000
        planes = av.AudioResampler("fltp", layout, 48000, stream.codec_context.frame_size).resample(frame)
        file.mux([packet for each in (*planes, None) for packet in stream.encode(each)])
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("containers")
    return {kind: write(folder / f"tone.{kind}", has_video=kind == "mp4") for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_recording_is_the_tone_that_was_written(files, kind):
    samples = read_audio(files[kind])
    assert abs(len(samples) / 16000 - 2.0) < 0.1
    assert audio_seconds(files[kind]) == pytest.approx(len(samples) / 16000, abs=1e-4)
    # Where a codec has a delay that its container does not tell, the tone comes a little earlier or later.
    own = tone(16000)[8000:16000]
    likeness = max(np.corrcoef(own, samples[8000 + lag : 16000 + lag])[0, 1] for lag in range(-1000, 1000, 2))
    assert likeness > (0.9 if kind == "amr" else 0.98)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_is_that_slice_of_the_whole_and_bytes_are_as_good_as_a_file(files, kind):
    rate = KINDS[kind][1]
    whole = read_audio(files[kind], rate=rate)
    for start, seconds in ((0.0, 0.5), (0.7321, 0.5), (1.2, 0.79)):
        first = round(start * rate)
        part = read_audio(files[kind], start, seconds, rate=rate)
        np.testing.assert_array_equal(part, whole[first : first + round(seconds * rate)])
    content = files[kind].read_bytes()
    np.testing.assert_array_equal(read_audio("a shard", rate=rate, content=content), whole)
    assert audio_seconds("a shard", content) == len(whole) / rate


@pytest.mark.parametrize("layout", ["7.1", "hexadecagonal"])
def test_eight_channels_and_more_are_decoded_as_fewer_are(tmp_path, layout):
    """PyAV reads behind their pointers, which ended the process."""
    program = "import sys; from attune.audio.decode import read_audio; print(len(read_audio(sys.argv[1])))"
    path = write_aac(tmp_path / "surround.mp4", layout, "mp4")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = read_audio(write_aac(tmp_path / "stereo.mp4", "stereo", "mp4"))
    found = read_audio(path)
    assert abs(len(found) - len(expected)) < 100 and np.corrcoef(found[:16000], expected[:16000])[0, 1] > 0.7


def test_channels_that_change_in_the_middle_are_refused(tmp_path):
    parts = [write_aac(tmp_path / f"{layout}.aac", layout).read_bytes() for layout in ("mono", "stereo")]
    with pytest.raises(DataError, match="changes its sample rate or channels in the middle"):
        read_audio("both.aac", content=b"".join(parts))


@pytest.mark.parametrize("read", [read_audio, audio_seconds])
def test_an_unknown_or_encrypted_codec_is_named(files, read):
    content = files["mka"].read_bytes().replace(b"A_PCM/INT/LIT", b"A_XYZ/INT/LIT")
    with pytest.raises(DataError, match="audio that is encrypted, damaged or of an unknown codec"):
        read("protected.mka", content=content)


@pytest.mark.skipif(RUNS_FFMPEG is None, reason="there is no ffmpeg to compare with")
@pytest.mark.parametrize("kind", [*KINDS, "opus"])
def test_the_samples_are_those_of_ffmpeg(files, kind, tmp_path):
    path = files.get(kind, tmp_path / "tone.opus")
    if kind == "opus":
        subprocess.run([RUNS_FFMPEG, "-v", "error", "-i", files["webm"], "-c:a", "copy", path], check=True)
    rate = 48000 if kind == "opus" else KINDS[kind][1]
    command = [RUNS_FFMPEG, "-v", "error", "-i", path, "-map", "a:0", "-ac", "1", "-f", "f32le", "-"]
    raw = np.frombuffer(subprocess.run(command, check=True, capture_output=True).stdout, np.float32)
    expected = raw if rate == 16000 else soxr.resample(raw, rate, 16000, quality="HQ")
    np.testing.assert_allclose(read_audio(path), expected, atol=1e-4, rtol=0)


@pytest.mark.skipif(RUNS_FFMPEG is None, reason="there is no ffmpeg to compare with")
@pytest.mark.parametrize(
    ("kind", "rate"), [(kind, rate) for kind in ("m4a", "mp4", "webm", "opus") for rate in (8000, 16000, 48000)]
)
def test_sound_of_any_rate_that_ffmpeg_has_encoded_is_decoded_as_ffmpeg_does(tmp_path, kind, rate):
    rng = np.random.default_rng(1)
    raw = (tone(rate) * 0.5 + 0.05 * rng.standard_normal(2 * rate)).astype(np.float32).tobytes()
    path = tmp_path / f"noisy.{kind}"
    source = ["-f", "f32le", "-ar", str(rate), "-ac", "1", "-i", "-"]
    subprocess.run([RUNS_FFMPEG, "-v", "error", *source, path], input=raw, check=True)
    out = ["-map", "a:0", "-ac", "1", "-f", "f32le", "-"]
    decoded = subprocess.run([RUNS_FFMPEG, "-v", "error", "-i", path, *out], check=True, capture_output=True).stdout
    own = 48000 if kind in ("webm", "opus") else rate
    expected = np.frombuffer(decoded, np.float32)
    expected = expected if own == 16000 else soxr.resample(expected, own, 16000, quality="HQ")
    np.testing.assert_allclose(read_audio(path), expected, atol=1e-4, rtol=0)
    np.testing.assert_array_equal(read_audio("a shard", content=path.read_bytes()), read_audio(path))
    assert audio_seconds(path) == pytest.approx(len(expected) / 16000, abs=1e-4)


@pytest.mark.skipif(RUNS_FFMPEG is None, reason="there is no ffmpeg to encode with")
def test_opus_speech_in_silk_is_decoded_at_its_own_rate_and_all_else_at_48_khz(tmp_path):
    raw = (0.5 * tone(16000)).astype(np.float32).tobytes()
    source = ["-f", "f32le", "-ar", "16000", "-ac", "1", "-i", "-"]
    for name, options in {"silk": ["-b:a", "24k", "-application", "voip"], "celt": []}.items():
        path = tmp_path / f"{name}.opus"
        subprocess.run([RUNS_FFMPEG, "-v", "error", *source, *options, path], input=raw, check=True)
        with path.open("rb") as stream:
            assert is_silk(stream) == (name == "silk")
        at_16_khz, _ = soundfile.read(path, dtype="float32")
        assert np.array_equal(read_audio(path), at_16_khz) == (name == "silk")
        whole, part = read_audio(path, rate=48000), read_audio(path, 0.5, 0.25, rate=48000)
        if name == "celt":  # as a slice of a wav: what is cut is what was decoded
            np.testing.assert_array_equal(part, whole[24000:36000])


def libopus_decode(path, rate):
    """What the reference decoder makes of a mono Ogg Opus file at a rate, the end not trimmed."""
    library = ctypes.CDLL(LIBOPUS)
    library.opus_decoder_create.restype = ctypes.c_void_p
    decoder = ctypes.c_void_p(library.opus_decoder_create(rate, 1, None))
    frame, frames = (ctypes.c_float * (rate // 8))(), []
    with av.open(str(path)) as file:
        stream = file.streams.audio[0]
        delay = int.from_bytes(stream.codec_context.extradata[10:12], "little") * rate // 48000
        for packet in map(bytes, file.demux(stream)):
            count = library.opus_decode_float(decoder, packet, len(packet), frame, len(frame), 0) if packet else 0
            frames.append(np.array(frame[:count], np.float32))
    library.opus_decoder_destroy(decoder)
    return np.concatenate(frames)[delay:]


@pytest.mark.skipif(RUNS_FFMPEG is None or LIBOPUS is None, reason="there is no ffmpeg or no libopus to compare with")
@pytest.mark.parametrize("rate", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("bits", ["12k", "40k"])
def test_opus_at_low_bit_rates_is_decoded_as_by_libopus_the_reference(tmp_path, rate, bits):
    """SILK and hybrid frames; FFmpeg's own decoder resamples SILK in another way (decision 35)."""
    path = tmp_path / "speech.opus"
    options = ["-ar", str(rate), "-b:a", bits, "-application", "voip"]
    source = ["-f", "f32le", "-ar", "48000", "-ac", "1", "-i", "-"]
    subprocess.run([RUNS_FFMPEG, "-v", "error", *source, *options, path], input=tone(48000).tobytes(), check=True)
    with path.open("rb") as stream:
        own = rate if is_silk(stream) else 48000
    expected = libopus_decode(path, own)[: 2 * own]
    expected = expected if own == 16000 else soxr.resample(expected, own, 16000, quality="HQ")
    found = read_audio(path)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    if own == 48000:  # FFmpeg's libopus always decodes at this rate
        command = [RUNS_FFMPEG, "-v", "error", "-c:a", "libopus", "-i", path, "-f", "f32le", "-"]
        raw = np.frombuffer(subprocess.run(command, check=True, capture_output=True).stdout, np.float32)
        np.testing.assert_allclose(found, soxr.resample(raw, 48000, 16000, quality="HQ"), atol=1e-4, rtol=0)


def test_a_damaged_head_of_opus_is_not_silk():
    assert not is_silk(BytesIO(b"OggS")) and not is_silk(BytesIO(b"")) and not is_silk(BytesIO(b"OggS" + bytes(40)))


@pytest.mark.parametrize("kind", ["m4a", "mka"])
def test_a_file_that_ends_early_is_refused(files, tmp_path, kind):
    if kind == "m4a":  # as for the web: its header comes first, so that its beginning can be opened
        with (
            av.open(str(files[kind])) as old,
            av.open(str(tmp_path / "whole.m4a"), "w", options={"movflags": "faststart"}) as new,
        ):
            stream = new.add_stream_from_template(old.streams.audio[0])
            for packet in old.demux(old.streams.audio[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    new.mux(packet)
    whole = tmp_path / "whole.m4a" if kind == "m4a" else files[kind]
    path = tmp_path / f"cut.{kind}"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(DataError, match="is corrupt or truncated"):
        read_audio(path)


def test_a_slice_beyond_the_end_and_a_file_without_audio_are_refused(files, tmp_path):
    with pytest.raises(DataError, match=r"is 2\.\d\d s long; the row asks for 1\.50 to 3\.50 s"):
        read_audio(files["m4a"], 1.5, 2.0)
    with av.open(str(tmp_path / "silent.mp4"), "w") as file:
        video = file.add_stream("mpeg4", rate=10, width=32, height=32, pix_fmt="yuv420p")
        black = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8))
        file.mux([*video.encode(black), *video.encode(None)])
    with pytest.raises(DataError, match="has no audio track"):
        read_audio(tmp_path / "silent.mp4")
    (tmp_path / "noise.m4a").write_bytes(b"\0\0\0\x1cftypM4A " + bytes(range(256)) * 20)
    with pytest.raises(DataError, match="is corrupt or truncated"):
        read_audio(tmp_path / "noise.m4a")


def test_a_playlist_is_never_followed(tmp_path):
    path = tmp_path / "list.m4a"
    path.write_text("#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/secret.ts\n")
    assert recognize(path.read_bytes()) is None
    with pytest.raises(DataError, match="is not audio, or its header is damaged"):
        read_audio(path)


def test_without_pyav_one_line_says_what_to_install(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(DataError) as error:
        read_audio(files["webm"])
    assert str(error.value).endswith("which needs PyAV. Run: pip install 'attune-speech[av]'")
    assert "\n" not in str(error.value)


def test_shards_and_manifests_take_them(files, tmp_path):
    import tarfile

    with tarfile.open(tmp_path / "train-0.tar", "w") as archive:
        for kind, path in files.items():
            put(archive, f"{kind}.{kind}", path.read_bytes())
            put(archive, f"{kind}.txt", b"a tone")
    found = shards_corpus.read(CorpusPaths(str(tmp_path), tmp_path / "to"), shards_corpus.Options())["train"]
    list(prepare_split("train", found, tmp_path / "to", 1))
    rows = list(open_manifest(tmp_path / "to/train.jsonl", tmp_path / "index"))
    assert {row.id for row in rows} == set(KINDS) <= {suffix[1:] for suffix in SUFFIXES}
    assert all(len(read_audio(row.audio, content=content_of(row))) for row in rows)

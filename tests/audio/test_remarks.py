"""What the MP3 decoder prints is shown where it concerns the samples, and only there."""

import ctypes
import sys
import threading

import numpy as np
import pytest
import soundfile

from attune.audio.decode import read_audio
from attune.audio.remarks import decoder_remarks

RATES = (8000, 16000, 22050)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """MP3s of low rates, whose frames refer to earlier ones."""
    folder, rng = tmp_path_factory.mktemp("mp3"), np.random.default_rng(0)
    for rate in RATES:
        times = np.arange(12 * rate)
        tone = 0.3 * np.sin(0.05 * times * np.linspace(1, 3, len(times))) + 0.02 * rng.standard_normal(len(times))
        soundfile.write(folder / f"{rate}.mp3", tone, rate, format="MP3")
    return folder


def slices(recordings, rate):
    path = recordings / f"{rate}.mp3"
    whole = read_audio(path, rate=rate)
    for start in (1.5, 2.3, 4.4, 6.1, 8.7, 9.9):
        first = round(start * rate)
        yield read_audio(path, start, 1.1, rate=rate), whole[first : first + round(1.1 * rate)]


@pytest.mark.parametrize("rate", RATES)
def test_slices_of_low_rate_mp3s_are_right_and_say_nothing(recordings, capfd, rate):
    for found, expected in slices(recordings, rate):
        assert np.allclose(found, expected, atol=1e-6)
    assert capfd.readouterr().err == ""


def test_what_is_wrong_in_the_slice_itself_is_shown(recordings, tmp_path, capfd):
    content = bytearray((recordings / "16000.mp3").read_bytes())
    header = content.index(b"\xff\xf3", len(content) // 2)  # of the frame at 6 s
    content[header + 6] ^= 0xFF  # how much of it is coded how
    (tmp_path / "damaged.mp3").write_bytes(content)
    read_audio(tmp_path / "damaged.mp3", 5.0, 4.0)
    assert "libmpg123" in capfd.readouterr().err
    read_audio(tmp_path / "damaged.mp3", 8.5, 1.0)
    assert capfd.readouterr().err == ""


def test_what_others_print_meanwhile_is_not_lost(capfd):
    library = ctypes.CDLL(None)
    with decoder_remarks() as remarks:
        stderr = ctypes.c_void_p.in_dll(library, "stderr")
        library.fputs(b"[src/libmpg123/layer3.c] error: odd\nfrom C\n", stderr)
        thread = threading.Thread(target=lambda: sys.stderr.write("from a thread\n"))
        thread.start()
        thread.join()
        assert "from a thread" in capfd.readouterr().err  # at once
        with decoder_remarks() as inner:  # another thread would come here: it does not wait
            pass
    assert remarks == ["[src/libmpg123/layer3.c] error: odd\n"] and inner == []
    assert capfd.readouterr().err == "from C\n"
    library.fputs(b"as ever\n", ctypes.c_void_p.in_dll(library, "stderr"))
    assert capfd.readouterr().err == "as ever\n"

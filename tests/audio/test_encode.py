import errno
import resource
import signal

import numpy as np
import pytest
import soundfile

from attune.audio.encode import write_audio


def test_audio_that_cannot_be_written_says_why_and_leaves_nothing(tmp_path):
    noise = np.random.default_rng(1).standard_normal(16_000).astype(np.float32) / 8
    write_audio(tmp_path / "whole.wav", noise, 16_000, "WAV", "FLOAT")
    assert (soundfile.read(tmp_path / "whole.wav", dtype="float32")[0] == noise).all()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # no file may grow past this, as on a full disk
    try:
        with pytest.raises(OSError) as refused:
            write_audio(tmp_path / "cut.wav", noise, 16_000, "WAV", "FLOAT")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refused.value.errno == errno.EFBIG
    assert [path.name for path in tmp_path.iterdir()] == ["whole.wav"]

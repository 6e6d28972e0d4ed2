"""Write audio files."""

import io
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from attune.files import completed


def write_audio(path: Path, samples: NDArray[np.generic], rate: int, container: str, coding: str | None = None) -> None:
    """Replace the whole file at once; of a full disk libsndfile says only "System error", so it encodes in memory."""
    content = io.BytesIO()
    soundfile.write(content, samples, rate, format=container, subtype=coding)
    with completed(path) as partial:
        partial.write_bytes(content.getbuffer())

"""What enhancement and separation share that is read without torch: their head's settings, and files of signals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import soundfile
from numpy.typing import NDArray
from pydantic import Field

from attune.errors import DataError


@dataclass(frozen=True, slots=True)
class MaskHeadConfig:
    """The module on top of the encoder: bidirectional LSTM layers and masks, as in SUPERB."""

    layers: Annotated[int, Field(ge=1, description="Bidirectional LSTM layers.")] = 3
    width: Annotated[int, Field(ge=1, description="Width of each LSTM direction.")] = 896
    dropout: Annotated[float, Field(ge=0, lt=1, description="Dropout after each layer.")] = 0.5


def read_prediction(path: Path) -> NDArray[np.float64]:
    """The signals (S, T) of a file that was predicted."""
    try:
        samples: NDArray[np.float64] = soundfile.read(path, dtype="float64", always_2d=True)[0]
    except soundfile.SoundFileError as error:
        raise DataError(f"Cannot read {path}: {error}. Run `attune evaluate` again.") from error
    return samples.T

"""S3PRL's own encoders as upstreams; torch is loaded when one is built."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attune.errors import ConfigError
from attune.families.ssl.upstream import Upstream

if TYPE_CHECKING:
    from torch import Tensor


def build(assets: Path) -> Upstream:
    """The encoder that the files in `assets` describe."""
    from attune.families.ssl.spectral_encoder import CONFIG, build_spectral

    if not (assets / CONFIG).is_file():
        raise ConfigError("This upstream needs model.weights: a .ckpt file of S3PRL's pretraining.")
    return build_spectral(assets)


def read(path: Path, assets: Path) -> "Mapping[str, Tensor]":
    """A .ckpt file that S3PRL's pretraining wrote."""
    from attune.families.ssl.spectral_encoder import read_spectral

    return read_spectral(path, assets)

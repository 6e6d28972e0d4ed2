"""Whisper's encoder (arXiv 2212.04356), always on 30 s. 20 ms, 5 layers of 384 (tiny) to 33 of 1280 (large)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attune.errors import ConfigError
from attune.families.ssl.upstream import Upstream, UpstreamType

if TYPE_CHECKING:
    from torch import Tensor


def build(assets: Path) -> Upstream:
    """The encoder that the files in `assets` describe."""
    from attune.families.ssl.whisper_encoder import CONFIG, build_whisper

    if not (assets / CONFIG).is_file():
        raise ConfigError("The upstream whisper needs model.weights: a transformers folder, hf://… or OpenAI's .pt.")
    return build_whisper(assets)


def read(path: Path, assets: Path) -> "Mapping[str, Tensor]":
    """A transformers folder or OpenAI's .pt file."""
    from attune.families.ssl.whisper_encoder import read_whisper

    return read_whisper(path, assets)


UPSTREAM = UpstreamType(build, read)

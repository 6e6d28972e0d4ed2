"""Upstreams of the wav2vec 2.0 kind by transformers' model type; torch is loaded when one is built."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attune.errors import ConfigError
from attune.families.ssl.upstream import Upstream, UpstreamType

if TYPE_CHECKING:
    from torch import Tensor


def wav2vec2_like(model_type: str) -> UpstreamType:
    """The upstream of a model type."""
    return UpstreamType(partial(_build, model_type), partial(_read, model_type))


def _build(model_type: str, assets: Path) -> Upstream:
    from attune.families.ssl.encoder.weights import CONFIG, build_encoder

    if not (assets / CONFIG).is_file():
        raise ConfigError(
            f"An upstream of type {model_type} needs model.weights: a transformers folder, one of the Hub (hf://…), or "
            "a .pt file of fairseq or S3PRL."
        )
    return build_encoder(assets)


def _read(model_type: str, path: Path, assets: Path) -> "Mapping[str, Tensor]":
    from attune.families.ssl.encoder.weights import read_encoder

    return read_encoder(model_type, path, assets)

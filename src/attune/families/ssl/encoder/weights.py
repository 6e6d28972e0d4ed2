"""Checkpoints of encoders: transformers folders, and `.pt` files of fairseq and S3PRL."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attune.errors import ModelError
from attune.families._checkpoints import as_tensors, fitted, read_folder, read_pt
from attune.families._json import read_json, write_json
from attune.families.ssl.encoder.fairseq import TOOLKITS, Described, describe
from attune.families.ssl.encoder.model import EncoderUpstream
from attune.families.ssl.encoder.names import from_fairseq, from_transformers
from attune.families.ssl.encoder.shape import shape_of

CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"


def build_encoder(assets: Path) -> EncoderUpstream:
    """The upstream that the files in `assets` describe, with random weights."""
    path = assets / CONFIG
    preprocessor = read_json(assets / PREPROCESSOR)
    normalizes, least_variance = preprocessor.get("do_normalize"), preprocessor.get("least_variance", 1e-7)
    return EncoderUpstream(shape_of(read_json(path), path), normalizes is True, float(least_variance))


def read_encoder(kind: str, path: Path, assets: Path) -> Mapping[str, Tensor]:
    """Read a checkpoint of transformers' model type `kind`; what describes it is written to `assets`."""
    renamed = _read_folder(kind, path, assets) if path.is_dir() else _read_file(kind, path, assets)
    with torch.device("meta"):
        own = build_encoder(assets).state_dict()
    # A model that was never masked has no embedding for what is hidden.
    renamed.setdefault("masked_spec_embed", torch.zeros(own["masked_spec_embed"].shape))
    return fitted(renamed, own, path)


def _read_folder(kind: str, folder: Path, assets: Path) -> dict[str, Tensor]:
    written = read_json(folder / CONFIG)
    _require_kind(kind, written.get("model_type"), folder)
    shape_of(written, folder / CONFIG)  # refused before its weights are read
    tensors = read_folder(folder)
    if any(".adapter_layer." in name for name in tensors):
        raise ModelError(f"{folder} has adapters in its layers, as MMS models of one language do. Use its base model.")
    shutil.copy(folder / CONFIG, assets / CONFIG)
    # As its own processor would be made: the default of transformers is to normalize.
    preprocessor = read_json(folder / PREPROCESSOR) if (folder / PREPROCESSOR).is_file() else {"do_normalize": True}
    write_json(assets / PREPROCESSOR, {"do_normalize": preprocessor.get("do_normalize", True)})
    return from_transformers(tensors)


def _read_file(kind: str, path: Path, assets: Path) -> dict[str, Tensor]:
    described: Described = describe(read_pt(path, TOOLKITS), path)
    if kind == "unispeech-sat" and described.config["model_type"] == "hubert":  # trained otherwise, and built alike
        described.config["model_type"] = kind
    _require_kind(kind, described.config["model_type"], path)
    shape_of(described.config, path)  # a mistake in it is the file's
    write_json(assets / CONFIG, described.config)
    # As fairseq normalizes, by a layer norm.
    write_json(assets / PREPROCESSOR, {"do_normalize": described.normalizes, "least_variance": 1e-5})
    return from_fairseq(as_tensors(described.tensors, path))


def _require_kind(kind: str, found: Any, path: Path) -> None:
    if found != kind:
        name = {"data2vec-audio": "data2vec"}.get(str(found), str(found).replace("-", "_"))
        raise ModelError(f"{path} is a model of type {found!r}; expected {kind!r}. Set model.upstream={name}.")

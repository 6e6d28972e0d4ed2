"""TERA and Mockingjay, S3PRL's own encoders of spectra: transformer layers on filterbanks, from its `.ckpt` files."""

# B batch, T samples, F frames, D width
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attune.audio.features import HOP, fbank, frame_count, within
from attune.audio.spectra import centered_count, mel
from attune.errors import ModelError
from attune.families._checkpoints import as_tensors, fitted, read_pt
from attune.families._json import read_json, write_json
from attune.families._positions import sinusoids
from attune.families.ssl.encoder.fairseq import TOOLKITS
from attune.families.ssl.encoder.layers import TransformerLayer
from attune.families.ssl.encoder.shape import EncoderShape, shape_of
from attune.types import Masks

CONFIG = "config.json"
INPUTS = {"fbank": (fbank, frame_count, 240), "mel": (mel, centered_count, 80)}
_NAMES = (  # S3PRL's and attune's
    (r"gamma$", "weight"),
    (r"beta$", "bias"),
    (r"^input_representations\.spec_transform\.", "projection."),
    (r"^input_representations\.LayerNorm\.", "layer_norm."),
    (r"^encoder\.layer\.", "layers."),
    (r"\.attention\.self\.query\.", ".attention.q_proj."),
    (r"\.attention\.self\.key\.", ".attention.k_proj."),
    (r"\.attention\.self\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.out_proj."),
    (r"\.attention\.output\.LayerNorm\.", ".layer_norm."),
    (r"\.intermediate\.dense\.", ".feed_forward.intermediate_dense."),
    (r"\.output\.dense\.", ".feed_forward.output_dense."),
    (r"\.output\.LayerNorm\.", ".final_layer_norm."),
)


class SpectralUpstream(nn.Module):
    """Filterbanks, sinusoidal positions, and transformer layers."""

    applies_masks = False
    max_seconds: float | None = None
    stride = HOP

    def __init__(self, shape: EncoderShape, source: str) -> None:
        super().__init__()
        self.features, self.count, width = INPUTS[source]
        self.widths: tuple[int, ...] = (shape.width,) * (shape.layers + 1)
        self.projection = nn.Linear(width, shape.width)
        self.layer_norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.dropout = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(TransformerLayer(shape) for _ in range(shape.layers))

    def forward(self, audio: Tensor, lengths: Tensor, masks: Masks | None = None) -> tuple[Iterator[Tensor], Tensor]:
        """The layers (B, F, D), computed as they are asked for, and the number of each row's own frames."""
        with torch.no_grad(), torch.autocast(audio.device.type, enabled=False):
            frames, counts = self.features(audio, lengths)
            # S3PRL divides by the deviation of a sample.
            frames = frames * ((counts - 1).clamp(min=1) / counts.clamp(min=2)).sqrt()[:, None, None]
        return self._states(frames.to(self.projection.weight.dtype), counts), counts

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        return self.count(samples)

    def _states(self, frames: Tensor, counts: Tensor) -> Iterator[Tensor]:
        mask = within(counts, frames.shape[1])[:, None, None]
        hidden = self.projection(frames)
        places = torch.arange(hidden.shape[1], dtype=torch.float32, device=hidden.device)
        hidden = self.dropout(self.layer_norm(hidden + sinusoids(places, hidden.shape[2]).to(hidden.dtype)))
        for layer in self.layers:
            yield hidden
            hidden = layer(hidden, mask, None)
        yield hidden


def build_spectral(assets: Path) -> SpectralUpstream:
    """The encoder that the files in `assets` describe, with random weights."""
    path = assets / CONFIG
    config = read_json(path)
    return SpectralUpstream(shape_of(config, path), str(config["input"]))


def read_spectral(path: Path, assets: Path) -> Mapping[str, Tensor]:
    """A checkpoint that S3PRL's pretraining wrote."""
    loaded = read_pt(path, TOOLKITS)
    described = _described(loaded)
    if described is None:
        raise ModelError(
            f"{path} is not a TERA or Mockingjay checkpoint: it lacks S3PRL's `Transformer` and "
            "its `transformer` config."
        )
    write_json(assets / CONFIG, _config(described, path))
    with torch.device("meta"):
        own = build_spectral(assets).state_dict()
    return fitted(_renamed(as_tensors(dict(loaded["Transformer"]), path)), own, path)


def _described(loaded: object) -> Mapping[str, Any] | None:
    if not isinstance(loaded, dict) or "Transformer" not in loaded:
        return None
    for name in ("Upstream_Config", "Config"):
        config = loaded.get(name)
        if isinstance(config, dict) and isinstance(config.get("transformer"), dict):
            return config
    return None


def _config(described: Mapping[str, Any], path: Path) -> dict[str, Any]:
    written = described["transformer"]
    if written.get("pre_layer_norm") or written.get("share_layer"):
        raise ModelError(f"{path} has norms first or shared layers, which TERA and Mockingjay do not have.")
    same = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act")
    return {
        **{name: written[name] for name in (*same, "layer_norm_eps") if name in written},
        "model_type": "mockingjay",
        "input": _input(described.get("audio"), path),
        "hidden_dropout": written.get("hidden_dropout_prob", 0.1),
        "attention_dropout": written.get("attention_probs_dropout_prob", 0.1),
        "activation_dropout": 0.0,
        "num_conv_pos_embedding_groups": 1,
    }


def _input(audio: object, path: Path) -> str:
    """Which filterbanks the model reads."""
    values = audio if isinstance(audio, dict) else {}
    kaldi, source = values.get("kaldi"), values.get("input")
    if isinstance(kaldi, dict) and kaldi.get("feat_type") == "fbank" and values.get("delta", {}).get("order") == 2:
        return "fbank"
    wanted = {"feat_type": "mel", "log": True, "delta": 0, "cmvn": True}
    if isinstance(source, dict) and wanted.items() <= source.items() and values.get("n_mels") == 80:
        return "mel"
    raise ModelError(f"{path} reads other features than fbank (80 bins with deltas) or log-mel energies (80 bins).")


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for name, tensor in tensors.items():
        for pattern, own in _NAMES:
            name = re.sub(pattern, own, name)
        found[name] = tensor
    return found

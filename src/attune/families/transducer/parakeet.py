"""FastConformer transducers in transformers' Parakeet format: weights, configuration, front-end and tokenizer.

Parakeet has one width for the prediction net and the joint, LSTM layers and no other encoder; other models have no such
format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attune.errors import ModelError
from attune.families._conformer_shape import ConformerShape
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.names import to_nemo
from attune.families.transducer.parakeet_tokens import BLANK, UNKNOWN, as_tokenizer
from attune.families.transducer.shape import TransducerShape
from attune.files import completed, write_text
from attune.tensor_files import write_safetensors
from attune.types import SAMPLE_RATE

RENAMES = (
    (r"^encoder\.pre_encode\.conv\.", "encoder.subsampling.layers."),
    (r"^encoder\.pre_encode\.out\.", "encoder.subsampling.linear."),
    (r"\.self_attn\.linear_([qkv])\.", r".self_attn.\1_proj."),
    (r"\.self_attn\.linear_out\.", ".self_attn.o_proj."),
    (r"\.self_attn\.linear_pos\.", ".self_attn.relative_k_proj."),
    (r"\.self_attn\.pos_bias_", ".self_attn.bias_"),
    (r"\.conv\.batch_norm\.", ".conv.norm."),
    (r"^decoder\.prediction\.embed\.", "decoder.embedding."),
    (r"^decoder\.prediction\.dec_rnn\.lstm\.", "decoder.lstm."),
    (r"^joint\.pred\.", "decoder.decoder_projector."),
    (r"^joint\.enc\.", "encoder_projector."),
    (r"^joint\.joint_net\.\d\.", "joint.head."),
)


def write_parakeet(model: TransducerModel, tokenizer: bytes, folder: Path) -> None:
    """Write a folder that transformers loads, as ParakeetForRNNT or ParakeetForTDT; the tokens are SentencePiece's."""
    encoder = _require_parakeet(model.shape)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config(model, encoder))
    _write_json(folder / "generation_config.json", _generation(model))
    _write_json(folder / "preprocessor_config.json", _preprocessor(model.shape))
    write_text(folder / "tokenizer.json", as_tokenizer(tokenizer).to_str())
    names = {"tokenizer_class": "ParakeetTokenizer", "pad_token": BLANK, "unk_token": UNKNOWN}
    _write_json(folder / "tokenizer_config.json", names)
    with completed(folder / "model.safetensors") as partial:
        write_safetensors(_renamed(to_nemo(model.state_dict(), model.shape)), partial, {"format": "pt"})


def _require_parakeet(shape: TransducerShape) -> ConformerShape:
    encoder = shape.encoder
    if isinstance(encoder, ConformerShape) and encoder.context:
        raise ModelError("transformers has no streaming Parakeet. Other toolkits can load the model.nemo.")
    if not isinstance(encoder, ConformerShape) or encoder.subsampling != "dw_striding" or shape.prediction.context:
        raise ModelError(
            "transformers supports FastConformer with an LSTM prediction net only; this model differs. Other "
            "toolkits can load its model.nemo."
        )
    if encoder.has_layer_norm or not shape.front_end.is_normalized:
        raise ModelError(
            "transformers supports batch norm in the convolutions and features that are normalized per utterance only; "
            "this model differs. Other toolkits can load its model.nemo."
        )
    if shape.prediction.width != shape.joint.width:
        raise ModelError(
            f"transformers needs a prediction net as wide as the joint; this model has {shape.prediction.width} "
            f"and {shape.joint.width}. Other toolkits can load its model.nemo."
        )
    if shape.durations != tuple(range(len(shape.durations))):
        raise ModelError(
            f"transformers needs TDT durations without gaps (0, 1, 2 …); this model has "
            f"{', '.join(map(str, shape.durations))}. Other toolkits can load its model.nemo."
        )
    return encoder


def _generation(model: TransducerModel) -> dict[str, Any]:
    """What `generate` needs to know; it takes the outputs for durations for tokens unless they are suppressed."""
    blank = model.lattice.blank
    config: dict[str, Any] = {"decoder_start_token_id": blank, "pad_token_id": blank}
    durations = range(blank + 1, blank + 1 + len(model.shape.durations))
    return {**config, "suppress_tokens": [*durations]} if durations else config


def _config(model: TransducerModel, encoder: ConformerShape) -> dict[str, Any]:
    shape, blank = model.shape, model.lattice.blank
    kind = "TDT" if shape.durations else "RNNT"
    config = {
        "architectures": [f"ParakeetFor{kind}"],
        "model_type": f"parakeet_{kind.lower()}",
        "vocab_size": blank + 1,
        "blank_token_id": blank,
        "pad_token_id": blank,
        "decoder_hidden_size": shape.joint.width,
        "num_decoder_layers": shape.prediction.layers,
        "hidden_act": shape.joint.activation,
        "max_symbols_per_step": 10,
        "encoder_config": _encoder_config(encoder),
        "dtype": "float32",
    }
    return {**config, "durations": list(shape.durations)} if shape.durations else config


def _encoder_config(encoder: ConformerShape) -> dict[str, Any]:
    return {
        "model_type": "parakeet_encoder",
        "hidden_size": encoder.width,
        "num_hidden_layers": encoder.layers,
        "num_attention_heads": encoder.heads,
        "intermediate_size": encoder.inner,
        "hidden_act": "silu",
        "attention_bias": encoder.has_bias,
        "convolution_bias": encoder.has_bias,
        "conv_kernel_size": encoder.kernel,
        "subsampling_factor": encoder.factor,
        "subsampling_conv_channels": encoder.channels,
        "num_mel_bins": encoder.bins,
        "dropout": encoder.dropout,
        "dropout_positions": encoder.dropout_positions,
        "layerdrop": 0.0,
        "activation_dropout": encoder.dropout,
        "attention_dropout": encoder.dropout_attention,
        "scale_input": encoder.scales_input,
    }


def _preprocessor(shape: TransducerShape) -> dict[str, Any]:
    return {
        "feature_extractor_type": "ParakeetFeatureExtractor",
        "feature_size": shape.front_end.bins,
        "sampling_rate": SAMPLE_RATE,
        "hop_length": shape.front_end.hop,
        "n_fft": shape.front_end.transform,
        "win_length": shape.front_end.window,
        "preemphasis": shape.front_end.preemphasis,
    }


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in tensors.items():
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        if not name.startswith("preprocessor."):
            renamed[name] = tensor.detach().cpu().contiguous()
    return renamed


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(values, indent=2) + "\n")

"""What fairseq's and S3PRL's `.pt` files say about a model, as transformers' config.json would say it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from attune.errors import ModelError
from attune.tensor_files import ForeignRecord

# Whose records such a file may hold, beside its weights.
TOOLKITS = ("argparse", "enum", "fairseq", "numpy", "omegaconf", "optimizers", "s3prl")
TEACHER = "_ema"  # data2vec's, a record of weights among them, which pretraining alone needs
CONVS = "[(512,10,5)] + [(512,3,2)] * 4 + [(512,2,2)] * 2"
EXPECTED = "Expected fairseq's `cfg` (or `args`) and `model`, or S3PRL's `model_cfg`, `task_cfg` and `model_weight`."
_NAMES = {  # transformers' and fairseq's
    "hidden_size": "encoder_embed_dim",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_embed_dim",
    "hidden_act": "activation_fn",
    "do_stable_layer_norm": "layer_norm_first",
    "conv_bias": "conv_bias",
    "num_conv_pos_embedding_groups": "conv_pos_groups",
    "hidden_dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "feat_proj_dropout": "dropout_input",
    "feat_proj_layer_norm": "feature_layer_norm",  # DistilHuBERT's, which has none
    "num_buckets": "num_buckets",
    "max_bucket_distance": "max_distance",
}


@dataclass(frozen=True, slots=True)
class Described:
    """A checkpoint: its weights under fairseq's names, its config.json, and whether each recording is normalized."""

    tensors: Mapping[str, Tensor]
    config: dict[str, Any]
    normalizes: bool


def describe(loaded: object, path: Path) -> Described:
    """Read what a file holds; one of another layout is refused."""
    if not isinstance(loaded, Mapping):
        raise ModelError(f"{path} has a {type(loaded).__name__}. {EXPECTED}")
    if {"model_cfg", "model_weight"} <= loaded.keys():  # S3PRL's
        model, task, tensors = loaded["model_cfg"], loaded.get("task_cfg"), loaded["model_weight"]
    elif "model" in loaded and (loaded.get("cfg") or loaded.get("args")):  # fairseq's, and Microsoft's for WavLM
        whole = _values(loaded.get("cfg") or loaded.get("args"))
        model, task, tensors = _pretrained(whole), whole.get("task", whole), loaded["model"]
    elif {"Config", "Distiller"} <= loaded.keys():  # S3PRL's DistilHuBERT
        model, task, tensors = _distilled(_values(loaded["Config"]), path), None, loaded["Distiller"]
    else:
        raise ModelError(f"{path} is not a checkpoint of fairseq or S3PRL. {EXPECTED}")
    if not isinstance(tensors, Mapping):
        raise ModelError(f"{path} has no weights by their names. {EXPECTED}")
    tensors = {name: each for name, each in tensors.items() if not str(name).endswith(TEACHER)}
    names = {str(name) for name in tensors}
    config = _config(_values(model), names, path)
    return Described(tensors, config, bool(_values(task).get("normalize", False)))


def _pretrained(whole: Mapping[str, Any]) -> object:
    """The settings of the encoder; a model that was fine-tuned has those of the one it began with among its own."""
    model = whole.get("model", whole)
    before = _values(_values(model).get("w2v_args"))
    return before.get("model", before) if before else model


def _distilled(config: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """S3PRL's settings of a DistilHuBERT as fairseq would have them."""
    model = _values(config.get("distiller"))
    if model.get("task_emb_type", "expand-last") in ("add", "concat", "concat-last"):
        raise ModelError(f"{path} has an embedding for each of its tasks, which DistilHuBERT does not have.")
    convs = {"conv_feature_layers": model.get("extractor_conv_feature_layers")}
    return {"encoder_layers": 1, **model, **convs, "_name": "hubert", "feature_layer_norm": False}


def _values(record: object) -> Mapping[str, Any]:
    """A record's values by name, whichever class it had."""
    if isinstance(record, ForeignRecord):
        record = record.values.get("_content", record.values)
    return record if isinstance(record, Mapping) else {}


def _config(model: Mapping[str, Any], names: set[str], path: Path) -> dict[str, Any]:
    kind = _kind(model, names)
    config = {ours: model[theirs] for ours, theirs in _NAMES.items() if model.get(theirs) is not None}
    convs = _convs(model.get("conv_feature_layers") or CONVS, path)
    widths, kernels, strides = ([conv[index] for conv in convs] for index in range(3))
    config |= {"model_type": kind, "conv_dim": widths, "conv_kernel": kernels, "conv_stride": strides}
    config["feat_extract_norm"] = "layer" if model.get("extractor_mode") == "layer_norm" else "group"
    if kind == "data2vec-audio":
        depth = int(model.get("pos_conv_depth", 5))
        # fairseq shares out one reach to all convolutions of the stack.
        kernel = max(3, int(model.get("conv_pos", 95)) // depth)
        config |= {"num_conv_pos_embeddings": depth, "conv_pos_kernel_size": kernel}
    else:
        config["num_conv_pos_embeddings"] = model.get("conv_pos", 128)
    return config


def _kind(model: Mapping[str, Any], names: set[str]) -> str:
    if any(name.endswith("relative_attention_bias.weight") for name in names):
        return "wavlm"
    if any(".pos_conv.1.0." in name for name in names):
        return "data2vec-audio"
    is_hubert = "label_embs_concat" in names or "untie_final_proj" in model or model.get("_name") == "hubert"
    return "hubert" if is_hubert else "wav2vec2"


def _convs(written: object, path: Path) -> list[tuple[int, int, int]]:
    """`[(512,10,5)] + [(512,3,2)] * 4`, read without running it."""
    try:
        convs = _value(ast.parse(str(written), mode="eval").body)
        return [(int(width), int(kernel), int(stride)) for width, kernel, stride in convs]
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise ModelError(f"Cannot read the convolutions {written!r:.80} of {path}. {EXPECTED}") from error


def _value(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return _value(left) + _value(right)
        case ast.BinOp(left, ast.Mult(), ast.Constant(int(times))) if times <= 100:
            return _value(left) * times
    return ast.literal_eval(node)

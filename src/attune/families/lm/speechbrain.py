"""SpeechBrain's RNNLM and TransformerLM, from the folder of the recognizer that one came with or from its own."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from torch import Tensor

from attune.contracts import ImportedCheckpoint
from attune.errors import ModelError
from attune.families._hyperparams import Hyperparams, Tagged, Value
from attune.families._speechbrain import (
    RNN_LM,
    TRANSFORMER_LM,
    PretrainerPart,
    copy_tokenizer,
    ends_of,
    number_of,
    open_hyperparams,
    parts_of,
    read_tensors,
)
from attune.families.lm.model import LmShape
from attune.families.lm.transformer import TransformerLmShape
from attune.files import write_text

TOKENIZER_KIND = "SentencePieceProcessor"
SHAPE = "model.json"
PADDING = 0  # TransformerLM masks this token wherever it is
EPSILON = 1e-6  # of TransformerLM's norms
ACTIVATIONS: Mapping[str, Literal["gelu", "relu"]] = {"GELU": "gelu", "ReLU": "relu"}
RNN_RULES = (
    (r"embedding\.Embedding\.", "net.embedding."),
    (r"rnn\.rnn\.(\w+)_l(\d+)", r"net.rnn.\2.\1_l0"),
    (r"dnn\.linear\.w\.", "net.dnn.0.linear."),
    (r"dnn\.norm\.norm\.", "net.dnn.0.norm."),
    (r"dnn\.block_(\d+)\.linear\.w\.", r"net.dnn.\1.linear."),
    (r"dnn\.block_(\d+)\.norm\.norm\.", r"net.dnn.\1.norm."),
    (r"out\.w\.", "net.output."),
)
TRANSFORMER_RULES = (
    (r"custom_src_module\.emb\.Embedding\.", "net.embedding."),
    (r"embedding_proj\.w\.", "net.projection."),
    (r"encoder\.layers\.(\d+)\.norm1\.norm\.", r"net.layers.\1.attention_norm."),
    (r"encoder\.layers\.(\d+)\.norm2\.norm\.", r"net.layers.\1.norm."),
    (r"encoder\.layers\.(\d+)\.self_att\.att\.out_proj\.", r"net.layers.\1.out_proj."),
    (r"encoder\.layers\.(\d+)\.pos_ffn\.ffn\.0\.", r"net.layers.\1.fc1."),
    (r"encoder\.layers\.(\d+)\.pos_ffn\.ffn\.3\.", r"net.layers.\1.fc2."),
    (r"encoder\.norm\.norm\.", "net.norm."),
    (r"output_proj\.layers\.0\.w\.", "net.before_output.0."),
    (r"output_proj\.layers\.1\.norm\.", "net.before_output.1."),
    (r"output_proj\.layers\.2\.w\.", "net.output."),
)
JOINED = re.compile(r"encoder\.layers\.(\d+)\.self_att\.att\.in_proj_(weight|bias)")
POSITIONS = "positional_encoding.pe"  # computed from the places


def import_lm(folder: Path, assets: Path) -> ImportedCheckpoint:
    """Write the sizes and the tokenizer to `assets`; the weights, under the model's own names."""
    params = open_hyperparams(folder)
    parts = {part.kind: part for part in parts_of(params)}
    lm = parts.get(RNN_LM) or parts.get(TRANSFORMER_LM)
    if lm is None or TOKENIZER_KIND not in parts:
        raise ModelError(
            f"The pretrainer of {params.path} loads no {RNN_LM} or {TRANSFORMER_LM} with a {TOKENIZER_KIND}."
        )
    shape = _rnn_shape(params, lm) if lm.kind == RNN_LM else _transformer_shape(params, lm)
    write_text(assets / SHAPE, json.dumps(asdict(shape), indent=1) + "\n")
    copy_tokenizer(parts[TOKENIZER_KIND], assets)
    renamed = _rnn_tensors if lm.kind == RNN_LM else _transformer_tensors
    return ImportedCheckpoint(dict(renamed(read_tensors(lm.file), params)))


def read_shape(assets: Path) -> LmShape | TransformerLmShape | None:
    """The sizes that came with imported weights."""
    path = assets / SHAPE
    if not path.is_file():
        return None
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        return TransformerLmShape(**written) if "heads" in written else LmShape(**written)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path} does not describe a language model: {error}.") from error


def _rnn_shape(params: Hyperparams, part: PretrainerPart) -> LmShape:
    sizes = params.arguments(part.key)
    tokens = number_of(params, sizes, "output_neurons", 0)
    begin, end = ends_of(params, tokens)
    rnn = sizes.get("rnn_class")
    if isinstance(rnn, Tagged) and rnn.name != "LSTM":
        raise ModelError(f"{params.path} has rnn_class={rnn.name}; attune imports language models of LSTM layers.")
    activation = sizes.get("activation")
    if isinstance(activation, Tagged) and activation.name != "LeakyReLU":
        raise ModelError(
            f"{params.path} has activation={activation.name}; attune imports language models of LeakyReLU."
        )
    return LmShape(
        tokens=tokens,
        embedding=number_of(params, sizes, "embedding_dim", 128),
        rnn_layers=number_of(params, sizes, "rnn_layers", 2),
        rnn_width=number_of(params, sizes, "rnn_neurons", 1024),
        dnn_layers=number_of(params, sizes, "dnn_blocks", 1),
        dnn_width=number_of(params, sizes, "dnn_neurons", 512),
        begin=begin,
        end=end,
    )


def _transformer_shape(params: Hyperparams, part: PretrainerPart) -> TransformerLmShape:
    sizes = params.arguments(part.key)
    _require_supported(params, sizes)
    tokens = number_of(params, sizes, "vocab", 0)
    begin, end = ends_of(params, tokens)
    if begin == PADDING:
        raise ModelError(
            f"{params.path} has bos_index={begin} for a {TRANSFORMER_LM}, which masks token {PADDING} as padding: with "
            "nothing to attend to, its log-probabilities are not numbers, in SpeechBrain too. Expected the bos_index "
            "and eos_index that it was trained with, in SpeechBrain's recipes 1 and 2."
        )
    activation = sizes.get("activation")
    return TransformerLmShape(
        tokens=tokens,
        width=number_of(params, sizes, "d_model", 512),
        heads=number_of(params, sizes, "nhead", 8),
        layers=number_of(params, sizes, "num_encoder_layers", 12),
        feed_forward=number_of(params, sizes, "d_ffn", 2048),
        embedding=None if sizes.get("d_embedding") is None else number_of(params, sizes, "d_embedding", 0),
        activation=ACTIVATIONS[activation.name if isinstance(activation, Tagged) else "ReLU"],
        norms="before" if sizes.get("normalize_before", False) else "after",
        epsilon=EPSILON,
        positions="pairs",
        is_output_deep=True,
        begin=begin,
        end=end,
        padding=PADDING,
    )


def _require_supported(params: Hyperparams, sizes: Mapping[str, Value]) -> None:
    activation = sizes.get("activation")
    name = activation.name if isinstance(activation, Tagged) else activation or "ReLU"
    expected: dict[str, tuple[Value, tuple[Value, ...]]] = {
        "num_decoder_layers": (sizes.get("num_decoder_layers", 0), (0,)),
        "attention_type": (sizes.get("attention_type", "regularMHA"), ("regularMHA",)),
        "positional_encoding": (sizes.get("positional_encoding", "fixed_abs_sine"), ("fixed_abs_sine",)),
        "activation": (name, tuple(ACTIVATIONS)),
    }
    for key, (found, wanted) in expected.items():
        if found not in wanted:
            raise ModelError(
                f"{params.path} has {key}={found} for its {TRANSFORMER_LM}; expected {' or '.join(map(str, wanted))}. "
                "attune imports those of encoder layers with absolute positions."
            )


def _rnn_tensors(tensors: Mapping[str, Tensor], params: Hyperparams) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        yield _renamed(name, RNN_RULES, params, "an RNNLM of LSTM layers"), tensor.float()


def _transformer_tensors(tensors: Mapping[str, Tensor], params: Hyperparams) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        if name == POSITIONS:
            continue
        if joined := JOINED.fullmatch(name):
            for part, own in zip("qkv", tensor.float().chunk(3), strict=True):
                yield f"net.layers.{joined[1]}.{part}_proj.{joined[2]}", own
        else:
            yield _renamed(name, TRANSFORMER_RULES, params, f"a {TRANSFORMER_LM}"), tensor.float()


def _renamed(name: str, rules: tuple[tuple[str, str], ...], params: Hyperparams, expected: str) -> str:
    for pattern, ours in rules:
        if re.match(pattern, name):
            return re.sub(f"^{pattern}", ours, name)
    raise ModelError(f"{params.path} loads {name!r}, which is not a weight of {expected}.")

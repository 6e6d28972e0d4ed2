"""SpeechBrain's RNNLM, from the folder of the recognizer that it came with or from one of its own."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from attune.contracts import ImportedCheckpoint
from attune.errors import ModelError
from attune.families._hyperparams import Hyperparams, Tagged
from attune.families._speechbrain import (
    PretrainerPart,
    copy_tokenizer,
    number_of,
    open_hyperparams,
    parts_of,
    read_tensors,
)
from attune.families.lm.model import LmShape
from attune.files import write_text

KIND, TOKENIZER_KIND = "RNNLM", "SentencePieceProcessor"
SHAPE = "model.json"
RULES = (
    (r"embedding\.Embedding\.", "net.embedding."),
    (r"rnn\.rnn\.(\w+)_l(\d+)", r"net.rnn.\2.\1_l0"),
    (r"dnn\.linear\.w\.", "net.dnn.0.linear."),
    (r"dnn\.norm\.norm\.", "net.dnn.0.norm."),
    (r"dnn\.block_(\d+)\.linear\.w\.", r"net.dnn.\1.linear."),
    (r"dnn\.block_(\d+)\.norm\.norm\.", r"net.dnn.\1.norm."),
    (r"out\.w\.", "net.output."),
)


def recognizes(path: Path) -> bool:
    """A folder of SpeechBrain's whose pretrainer loads a language model."""
    if not (path / "hyperparams.yaml").is_file():
        return False
    return any(part.kind == KIND for part in parts_of(open_hyperparams(path)))


def import_lm(folder: Path, assets: Path) -> ImportedCheckpoint:
    """Write the sizes and the tokenizer to `assets`; the weights, under the model's own names."""
    params = open_hyperparams(folder)
    parts = {part.kind: part for part in parts_of(params)}
    if not {KIND, TOKENIZER_KIND} <= parts.keys():
        raise ModelError(f"The pretrainer of {params.path} loads no {KIND} with a {TOKENIZER_KIND}.")
    write_text(assets / SHAPE, json.dumps(asdict(_shape(params, parts[KIND])), indent=1) + "\n")
    copy_tokenizer(parts[TOKENIZER_KIND], assets)
    tensors = {_renamed(name, params): tensor.float() for name, tensor in read_tensors(parts[KIND].file).items()}
    return ImportedCheckpoint(tensors)


def read_shape(assets: Path) -> LmShape | None:
    """The sizes that came with imported weights."""
    path = assets / SHAPE
    try:
        return LmShape(**json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
    except (TypeError, ValueError) as error:
        raise ModelError(f"{path} does not describe a language model: {error}.") from error


def _shape(params: Hyperparams, part: PretrainerPart) -> LmShape:
    sizes = params.arguments(part.key)
    rnn = sizes.get("rnn_class")
    if isinstance(rnn, Tagged) and rnn.name != "LSTM":
        raise ModelError(f"{params.path} has rnn_class={rnn.name}; attune imports language models of LSTM layers.")
    activation = sizes.get("activation")
    if isinstance(activation, Tagged) and activation.name != "LeakyReLU":
        raise ModelError(
            f"{params.path} has activation={activation.name}; attune imports language models of LeakyReLU."
        )
    return LmShape(
        tokens=number_of(params, sizes, "output_neurons", 0),
        embedding=number_of(params, sizes, "embedding_dim", 128),
        rnn_layers=number_of(params, sizes, "rnn_layers", 2),
        rnn_width=number_of(params, sizes, "rnn_neurons", 1024),
        dnn_layers=number_of(params, sizes, "dnn_blocks", 1),
        dnn_width=number_of(params, sizes, "dnn_neurons", 512),
    )


def _renamed(name: str, params: Hyperparams) -> str:
    for pattern, ours in RULES:
        if re.match(pattern, name):
            return re.sub(f"^{pattern}", ours, name)
    raise ModelError(f"{params.path} loads {name!r}, which is not a weight of an RNNLM of LSTM layers.")

"""SpeechBrain's pretrained folders: hyperparams.yaml as data, each part from the file that its pretrainer names."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from attune.errors import ModelError
from attune.families._hyperparams import Hyperparams, Tagged, Value, read_hyperparams
from attune.families.aed.shape import AedShape, CrdnnShape, GruDecoderShape, write_shape
from attune.families.aed.vocabulary import TOKENIZER
from attune.tensor_files import BadTensorFile, read_pickled, require_bounded

FILE = "hyperparams.yaml"
SUPPORTED = "attune imports a CRDNN of LSTM layers with a location-aware GRU decoder."
# SpeechBrain's names within each of its modules, and ours
ENCODER = (
    (r"CNN\.block_(\d+)\.(conv_\d)\.conv\.", r"encoder.blocks.\1.\2.conv."),
    (r"CNN\.block_(\d+)\.(norm_\d)\.norm\.", r"encoder.blocks.\1.\2."),
    (r"RNN\.rnn\.(weight_[ih]h|bias_[ih]h)_l(\d+)", r"encoder.rnn.\2.\1_l0"),
    (r"DNN\.block_(\d+)\.linear\.w\.", r"encoder.dnn.\1.linear."),
    (r"DNN\.block_(\d+)\.norm\.norm\.", r"encoder.dnn.\1.norm."),
)
DECODER = (
    (r"proj\.", "decoder.projection."),
    (r"attn\.mlp_enc\.", "decoder.attention.encoded."),
    (r"attn\.mlp_dec\.", "decoder.attention.state."),
    (r"attn\.mlp_attn\.", "decoder.attention.energy."),
    (r"attn\.conv_loc\.", "decoder.attention.conv."),
    (r"attn\.mlp_loc\.", "decoder.attention.location."),
    (r"attn\.mlp_out\.", "decoder.attention.output."),
    (r"rnn\.rnn_cells\.0\.", "decoder.cell."),
)
RULES = {
    "CRDNN": ENCODER,
    "Embedding": ((r"Embedding\.", "decoder.embedding."),),
    "AttentionalRNNDecoder": DECODER,
}


def import_folder(folder: Path, assets: Path) -> Mapping[str, Tensor]:
    """Write the sizes and the tokenizer to `assets`; the weights, under the model's own names."""
    params = read_hyperparams(folder / FILE)
    parts = dict(_parts(params, folder))
    for kind in ("SentencePieceProcessor", "ModuleList", "InputNormalization"):
        if kind not in parts:
            raise ModelError(f"The pretrainer of {folder / FILE} loads no {kind}. {SUPPORTED}")
    names = _module_names(params, parts["ModuleList"][0])
    shape = _shape(params, names)
    write_shape(shape, assets)
    (assets / TOKENIZER).write_bytes(parts["SentencePieceProcessor"][1].read_bytes())
    tensors = dict(_renamed(params, names, _read(parts["ModuleList"][1])))
    statistics = _read(parts["InputNormalization"][1])
    return {
        **tensors,
        "front_end.norm.mean": statistics["glob_mean"].reshape(shape.mels),
        "front_end.norm.deviation": statistics["glob_std"].reshape(shape.mels),
        "front_end.norm.count": torch.as_tensor(statistics["count"], dtype=torch.float64).reshape(()),
    }


def _parts(params: Hyperparams, folder: Path) -> Iterator[tuple[str, tuple[str, Path]]]:
    """What the pretrainer loads: the kind of each part, its key, and its file in this folder."""
    pretrainer = params.arguments("pretrainer")
    loadables, paths = pretrainer.get("loadables"), pretrainer.get("paths")
    raw = params.root.get("pretrainer")
    keys = _references(raw.value if isinstance(raw, Tagged) else raw, "loadables")
    for name, loaded in loadables.items() if isinstance(loadables, dict) else ():
        if isinstance(loaded, Tagged):
            named = paths.get(name) if isinstance(paths, dict) else None
            file = folder / Path(str(named)).name if named else folder / f"{name}.ckpt"
            yield loaded.name, (keys.get(name, ""), file)


def _references(section: Value, key: str) -> dict[str, str]:
    """The top-level keys that the entries of a section refer to."""
    entries = section.get(key) if isinstance(section, dict) else None
    found = entries.items() if isinstance(entries, dict) else ()
    return {name: _referred(value) for name, value in found}


def _referred(value: Value) -> str:
    return str(value.value).strip("<> ") if isinstance(value, Tagged) and value.tag == "!ref" else ""


def _module_names(params: Hyperparams, key: str) -> list[str]:
    """The keys of the modules in a ModuleList, in order: they number the weights."""
    raw = params.root.get(key)
    entries = raw.value if isinstance(raw, Tagged) else ()
    while isinstance(entries, tuple) and len(entries) == 1 and isinstance(entries[0], tuple):
        entries = entries[0]
    return [_referred(each) for each in entries] if isinstance(entries, tuple) else []


def _renamed(params: Hyperparams, names: list[str], tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    token_output = _token_output(params)
    for name, tensor in tensors.items():
        number, _, rest = name.partition(".")
        module = names[int(number)] if number.isdecimal() and int(number) < len(names) else ""
        kind = params.name(module)
        linear = ((r"w\.", "decoder.output." if module == token_output else "ctc."),)
        new = next((found for found in _matches(rest, RULES.get(kind, linear if kind == "Linear" else ()))), None)
        if new is None:
            raise ModelError(f"{params.path} loads {name!r}, which is not a weight of a CRDNN. {SUPPORTED}")
        yield new, tensor.float() if tensor.is_floating_point() else tensor


def _matches(name: str, rules: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for pattern, ours in rules:
        if re.match(pattern, name):
            yield re.sub(f"^{pattern}", ours, name)


def _token_output(params: Hyperparams) -> str:
    """The key of the linear layer that the searcher decodes with; the other one is CTC's."""
    for value in params.root.values():
        if isinstance(value, Tagged) and value.name.startswith("S2S") and isinstance(value.value, dict):
            return _referred(value.value.get("linear"))
    return "seq_lin"


def _shape(params: Hyperparams, names: list[str]) -> AedShape:
    by_kind = {params.name(name): params.arguments(name) for name in names}
    if not {"CRDNN", "AttentionalRNNDecoder", "Embedding"} <= by_kind.keys():
        raise ModelError(f"{params.path} describes {', '.join(filter(None, by_kind)) or 'no model'}. {SUPPORTED}")
    encoder, decoder, embedding = by_kind["CRDNN"], by_kind["AttentionalRNNDecoder"], by_kind["Embedding"]
    features = params.arguments("compute_features")
    _require_supported(params, encoder, decoder)
    return AedShape(
        mels=_whole(params, features, "n_mels", 40),
        transform=_whole(params, features, "n_fft", 400),
        tokens=_whole(params, embedding, "num_embeddings", 0),
        encoder=CrdnnShape(
            channels=_wholes(params, encoder, "cnn_channels", (128, 256)),
            kernel=_wholes(params, encoder, "cnn_kernelsize", (3, 3))[0],
            frequency_pooling=_wholes(params, encoder, "inter_layer_pooling_size", (2, 2)),
            time_pooling=_whole(params, encoder, "time_pooling_size", 2),
            rnn_layers=_whole(params, encoder, "rnn_layers", 4),
            rnn_width=_whole(params, encoder, "rnn_neurons", 512),
            dnn_layers=_whole(params, encoder, "dnn_blocks", 2),
            width=_whole(params, encoder, "dnn_neurons", 512),
        ),
        decoder=GruDecoderShape(
            embedding=_whole(params, embedding, "embedding_dim", 128),
            width=_whole(params, decoder, "hidden_size", 0),
            attention_width=_whole(params, decoder, "attn_dim", 0),
            attention_channels=_whole(params, decoder, "channels", 10),
            attention_reach=_whole(params, decoder, "kernel_size", 100),
        ),
    )


def _require_supported(params: Hyperparams, encoder: dict[str, Value], decoder: dict[str, Value]) -> None:
    rnn = encoder.get("rnn_class")
    expected = {
        "rnn_class": (rnn.name if isinstance(rnn, Tagged) else rnn, "LSTM"),
        "rnn_bidirectional": (encoder.get("rnn_bidirectional", True), True),
        "using_2d_pooling": (encoder.get("using_2d_pooling", False), False),
        "time_pooling": (encoder.get("time_pooling", False), True),
        "projection_dim": (encoder.get("projection_dim", -1), -1),
        "use_rnnp": (encoder.get("use_rnnp", False), False),
        "rnn_type": (decoder.get("rnn_type"), "gru"),
        "attn_type": (decoder.get("attn_type"), "location"),
        "num_layers": (decoder.get("num_layers", 1), 1),
        "scaling": (decoder.get("scaling", 1.0), 1.0),
    }
    for key, (found, wanted) in expected.items():
        if found != wanted:
            raise ModelError(f"{params.path} has {key}={found!r}, where {wanted!r} is supported. {SUPPORTED}")


def _whole(params: Hyperparams, section: dict[str, Value], key: str, default: int) -> int:
    value = section.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(f"{params.path} has {key}={value!r}, where a whole number was expected.")
    return value


def _wholes(params: Hyperparams, section: dict[str, Value], key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = section.get(key, default)
    if not isinstance(value, tuple) or not value:
        raise ModelError(f"{params.path} has {key}={value!r}, where a list of whole numbers was expected.")
    return tuple(_whole(params, {key: each}, key, 0) for each in value)


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, and nothing else of it."""
    try:
        with path.open("rb") as file:
            loaded = read_pickled(file, path.stat().st_size)
        found = dict(loaded)  # type: ignore[call-overload]
        tensors = {name: torch.as_tensor(value) for name, value in found.items() if isinstance(value, Tensor | int)}
        require_bounded(tensors, path.stat().st_size)
    except FileNotFoundError as error:
        raise ModelError(f"{path} is missing: the pretrainer of {FILE} names it.") from error
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path} is refused: it holds more than tensors. Nothing in it was executed.") from error
    except (BadTensorFile, RuntimeError, ValueError, TypeError, EOFError, OSError) as error:
        raise ModelError(f"{path} cannot be read as a checkpoint: {' '.join(str(error).split())[:300]}") from error
    return tensors

"""SpeechBrain's pretrained recognizers: hyperparams.yaml as data, each part from where its pretrainer says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from attune.contracts import ImportedCheckpoint
from attune.errors import ModelError
from attune.families._hyperparams import Hyperparams, Tagged, Value
from attune.families._speechbrain import (
    copy_tokenizer,
    number_of,
    numbers_of,
    open_hyperparams,
    parts_of,
    read_tensors,
    referred_key,
)
from attune.families.aed.shape import AedShape, CrdnnShape, GruDecoderShape, write_shape

NEW_HEAD = (
    "Its head differs from those of the family ssl. Train a new one on the original encoder: "
    "model: {{family: ssl, upstream: UPSTREAM, weights: hf://{source}}}"
)
OTHERS = (
    (r"(HuggingFace)?Wav2Vec2(Pretrain)?", NEW_HEAD.replace("UPSTREAM", "wav2vec2")),
    (r"(HuggingFace)?WavLM", NEW_HEAD.replace("UPSTREAM", "wavlm")),
    (r"(HuggingFace)?HuBERT", NEW_HEAD.replace("UPSTREAM", "hubert")),
    (
        r"(HuggingFace)?Whisper",
        "It has no tokenizer. Import the original model instead: attune import hf://{source} --to MODEL",
    ),
    (r"TransformerASR", "Its Transformer layers are not supported. Train a new model: model.size=conformer-small."),
)
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
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


def import_folder(folder: Path, assets: Path) -> ImportedCheckpoint:
    """Write the sizes and the tokenizer to `assets`; the weights, under the model's own names, and how it searches."""
    params = open_hyperparams(folder)
    refuse_others(params)
    parts = {part.kind: part for part in parts_of(params)}
    for kind in ("SentencePieceProcessor", "ModuleList", "InputNormalization"):
        if kind not in parts:
            raise ModelError(f"The pretrainer of {params.path} loads no {kind}. {SUPPORTED}")
    names = _module_names(params, parts["ModuleList"].key)
    shape = _shape(params, names)
    write_shape(shape, assets)
    copy_tokenizer(parts["SentencePieceProcessor"], assets)
    tensors = dict(_renamed(params, names, read_tensors(parts["ModuleList"].file)))
    statistics = read_tensors(parts["InputNormalization"].file)
    normalized = {
        "front_end.norm.mean": statistics["glob_mean"].reshape(shape.mels),
        "front_end.norm.deviation": statistics["glob_std"].reshape(shape.mels),
        "front_end.norm.count": statistics["count"].double().reshape(()),
    }
    return ImportedCheckpoint({**tensors, **normalized}, tuple(_search_settings(params)))


def refuse_others(params: Hyperparams) -> None:
    """Refuse SpeechBrain's models of other kinds, each with the reason."""
    for key, value in params.root.items():
        kind = value.name if isinstance(value, Tagged) else ""
        for pattern, reason in OTHERS:
            if re.fullmatch(pattern, kind):
                source = params.arguments(key).get("source")
                named = source if isinstance(source, str) and HUB_ID.fullmatch(source) else "ORG/NAME"
                raise ModelError(f"{params.path} describes a {kind} model. {reason.format(source=named)}")


def _search_settings(params: Hyperparams) -> Iterator[str]:
    """The search that the folder recommends, as settings of a recipe."""
    key = next((key for key, value in params.root.items() if _is_searcher(value)), None)
    decoder = params.arguments(key) if key else {}
    scorer = decoder.get("scorer")
    weights = scorer.value.get("weights") if isinstance(scorer, Tagged) and isinstance(scorer.value, dict) else None
    coverage = weights.get("coverage") if isinstance(weights, dict) else None
    if "Beam" in (params.name(key) if key else ""):
        yield from ("decode.search=beam", "decode.length_power=1")
    shift = decoder.get("max_attn_shift") if decoder.get("using_max_attn_shift") else None
    found = {
        "decode.beam": decoder.get("beam_size"),
        "model.temperature": decoder.get("temperature"),
        "model.end_threshold": decoder.get("eos_threshold") if decoder.get("using_eos_threshold", True) else None,
        "model.max_attention_shift": shift,
        "model.coverage": coverage,
    }
    yield from (f"{name}={value}" for name, value in found.items() if isinstance(value, int | float))


def _is_searcher(value: Value) -> bool:
    return isinstance(value, Tagged) and value.tag.startswith("!new:") and value.name.startswith("S2S")


def _module_names(params: Hyperparams, key: str) -> list[str]:
    """The keys of the modules in a ModuleList, in order: they number the weights."""
    raw = params.root.get(key)
    entries = raw.value if isinstance(raw, Tagged) else ()
    while isinstance(entries, tuple) and len(entries) == 1 and isinstance(entries[0], tuple):
        entries = entries[0]
    return [referred_key(each) for each in entries] if isinstance(entries, tuple) else []


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
            return referred_key(value.value.get("linear"))
    return "seq_lin"


def _shape(params: Hyperparams, names: list[str]) -> AedShape:
    by_kind = {params.name(name): params.arguments(name) for name in names}
    if not {"CRDNN", "AttentionalRNNDecoder", "Embedding"} <= by_kind.keys():
        raise ModelError(f"{params.path} describes {', '.join(filter(None, by_kind)) or 'no model'}. {SUPPORTED}")
    encoder, decoder, embedding = by_kind["CRDNN"], by_kind["AttentionalRNNDecoder"], by_kind["Embedding"]
    features = params.arguments("compute_features")
    _require_supported(params, encoder, decoder)
    return AedShape(
        mels=number_of(params, features, "n_mels", 40),
        transform=number_of(params, features, "n_fft", 400),
        tokens=number_of(params, embedding, "num_embeddings", 0),
        encoder=CrdnnShape(
            channels=numbers_of(params, encoder, "cnn_channels", (128, 256)),
            kernel=numbers_of(params, encoder, "cnn_kernelsize", (3, 3))[0],
            frequency_pooling=numbers_of(params, encoder, "inter_layer_pooling_size", (2, 2)),
            time_pooling=number_of(params, encoder, "time_pooling_size", 2),
            rnn_layers=number_of(params, encoder, "rnn_layers", 4),
            rnn_width=number_of(params, encoder, "rnn_neurons", 512),
            dnn_layers=number_of(params, encoder, "dnn_blocks", 2),
            width=number_of(params, encoder, "dnn_neurons", 512),
        ),
        decoder=GruDecoderShape(
            embedding=number_of(params, embedding, "embedding_dim", 128),
            width=number_of(params, decoder, "hidden_size", 0),
            attention_width=number_of(params, decoder, "attn_dim", 0),
            attention_channels=number_of(params, decoder, "channels", 10),
            attention_reach=number_of(params, decoder, "kernel_size", 100),
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
            raise ModelError(f"{params.path} has {key}={found!r}; only {wanted!r} is supported. {SUPPORTED}")

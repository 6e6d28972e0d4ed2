"""SpeechBrain's pretrained recognizers: hyperparams.yaml as data, each part from where its pretrainer says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from attune.contracts import ImportedCheckpoint
from attune.errors import ModelError
from attune.families._hyperparams import Hyperparams, Tagged, Value
from attune.families._speechbrain import (
    LANGUAGE_MODELS,
    RECOGNIZER,
    copy_tokenizer,
    ends_of,
    number_of,
    numbers_of,
    open_hyperparams,
    parts_of,
    read_tensors,
    searcher_of,
)
from attune.families.aed.shape import AedShape, CrdnnShape, GruDecoderShape, write_shape
from attune.types import SAMPLE_RATE, ImportedSearch

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
SCORERS = ("rnnlm", "transformerlm", "coverage", "ctc")  # whose weights are imported
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
SUPPORTED = "attune imports a CRDNN of LSTM layers with a location-aware GRU decoder."
# SpeechBrain's names within each of its modules, and ours
ENCODER = (
    (r"CNN\.block_(\d+)\.(conv_\d)\.conv\.", r"encoder.blocks.\1.\2.conv."),
    (r"CNN\.block_(\d+)\.(norm_\d)\.norm\.", r"encoder.blocks.\1.\2."),
    (r"RNN\.rnn\.(weight_[ih]h|bias_[ih]h)_l(\d+)", r"encoder.rnn.\2.\1_l0"),
    (r"RNN\.w\.(\d+)\.", r"encoder.projections.\1."),
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
    normalize = _normalization(params)
    needed = ("SentencePieceProcessor", RECOGNIZER, *(("InputNormalization",) if normalize == "global" else ()))
    for kind in needed:
        if kind not in parts:
            raise ModelError(f"The pretrainer of {params.path} loads no {kind}. {SUPPORTED}")
    names = _module_names(params, parts[RECOGNIZER].key)
    shape = _shape(params, names)
    write_shape(shape, assets)
    copy_tokenizer(parts["SentencePieceProcessor"], assets)
    tensors = dict(_renamed(params, names, read_tensors(parts[RECOGNIZER].file)))
    if normalize == "global":
        tensors |= dict(_statistics(parts["InputNormalization"].file, shape.mels))
    settings = (f"model.normalize={normalize}", *_search_settings(params))
    search = ImportedSearch(tuple(_fusion_settings(params)), tuple(_left_out(params)))
    return ImportedCheckpoint(tensors, settings, search=search)


def _left_out(params: Hyperparams) -> Iterator[str]:
    """What the folder decodes with and attune does not have."""
    decoder = params.arguments(searcher_of(params))
    yield from (
        f"a {part.kind}" for part in parts_of(params) if part.kind.endswith("LM") and part.kind not in LANGUAGE_MODELS
    )
    for name, weight in {"length_rewarding": decoder.get("length_rewarding"), **_scorer_weights(params)}.items():
        if weight and name not in SCORERS:
            yield f"{name}={weight}"


def _normalization(params: Hyperparams) -> str:
    key = params.first_of("InputNormalization")
    found = params.arguments(key)
    kind = found.get("norm_type", "global")
    if kind not in ("global", "sentence") or found.get("std_norm", True) is not True:
        only_mean = "" if found.get("std_norm", True) is True else " and std_norm=False"
        raise ModelError(
            f"{params.path} normalizes features with norm_type={kind}{only_mean}; attune imports global and sentence, "
            "with std_norm."
        )
    return str(kind)


def _statistics(path: Path, mels: int) -> Iterator[tuple[str, Tensor]]:
    found = read_tensors(path)
    for name, ours, shape in (
        ("glob_mean", "mean", (mels,)),
        ("glob_std", "deviation", (mels,)),
        ("count", "count", ()),
    ):
        value = found.get(name)
        if value is None or value.numel() != math.prod(shape):
            raise ModelError(f"{path} has no {name} of {mels} mel bands: these are not statistics of this model.")
        yield f"front_end.norm.{ours}", (value.float() if shape else value.double()).reshape(shape)


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
    key = searcher_of(params)
    decoder, weights = params.arguments(key), _scorer_weights(params)
    usual = {"min_decode_ratio": 0, "max_decode_ratio": 1}
    yield from _settings(
        {f"model.{name}": decoder[name] for name in usual if decoder.get(name, usual[name]) != usual[name]}
    )
    if "Beam" not in params.name(key):
        return
    is_normalized = decoder.get("length_normalization", True)
    yield from ("decode.search=beam", f"decode.length_power={1 if is_normalized else 0}")
    found = {
        "decode.beam": decoder.get("beam_size"),
        "model.temperature": decoder.get("temperature"),
        # SpeechBrain's defaults where the file has none
        "model.end_threshold": decoder.get("eos_threshold", 1.5) if decoder.get("using_eos_threshold", True) else None,
        "model.max_attention_shift": decoder.get("max_attn_shift", 60) if decoder.get("using_max_attn_shift") else None,
        # Before SpeechBrain 1.0, the searcher itself had these weights.
        "model.coverage": weights.get("coverage", decoder.get("coverage_penalty")),
        "model.coverage_threshold": _scorer_arguments(params, "CoverageScorer").get("threshold"),
        "decode.ctc_weight": weights.get("ctc", decoder.get("ctc_weight")) or None,
    }
    yield from _settings(found)


def _fusion_settings(params: Hyperparams) -> Iterator[str]:
    """How the searcher fuses the language model, as settings of a recipe."""
    decoder = params.arguments(searcher_of(params))
    own = {**_scorer_arguments(params, "RNNLMScorer"), **_scorer_arguments(params, "TransformerLMScorer")}
    weights = _scorer_weights(params)
    temperature = own.get("temperature", decoder.get("temperature_lm"))
    weight = weights.get("rnnlm", weights.get("transformerlm", decoder.get("lm_weight")))
    yield from _settings({"decode.lm_weight": weight, "decode.lm_temperature": temperature})


def _settings(found: Mapping[str, Value]) -> Iterator[str]:
    for name, value in found.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{name}={value}"


def _scorer_weights(params: Hyperparams) -> Mapping[str, Value]:
    scorer = params.arguments(searcher_of(params)).get("scorer")
    weights = scorer.value.get("weights") if isinstance(scorer, Tagged) and isinstance(scorer.value, dict) else None
    return weights if isinstance(weights, dict) else {}


def _scorer_arguments(params: Hyperparams, kind: str) -> Mapping[str, Value]:
    """What one of the searcher's own scorers is made with."""
    scorer = params.arguments(searcher_of(params)).get("scorer")
    full = scorer.value.get("full_scorers") if isinstance(scorer, Tagged) and isinstance(scorer.value, dict) else None
    for each in full if isinstance(full, tuple) else ():
        if isinstance(each, Tagged) and each.name == kind and isinstance(each.value, dict):
            return each.value
    return {}


def _module_names(params: Hyperparams, key: str) -> list[str]:
    """The keys of the modules in a ModuleList, in order: they number the weights."""
    raw = params.raw(key)
    entries = raw.value if isinstance(raw, Tagged) else ()
    while isinstance(entries, tuple) and len(entries) == 1 and isinstance(entries[0], tuple):
        entries = entries[0]
    return [params.key_of(each) for each in entries] if isinstance(entries, tuple) else []


def _renamed(params: Hyperparams, names: list[str], tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    token_output = _token_output(params)
    for name, tensor in tensors.items():
        number, _, rest = name.partition(".")
        module = names[int(number)] if number.isdecimal() and int(number) < len(names) else ""
        kind = params.name(module)
        rest = _within_rnn(rest) if kind == "CRDNN" else rest
        linear = ((r"w\.", "decoder.output." if module == token_output else "ctc."),)
        new = next((found for found in _matches(rest, RULES.get(kind, linear if kind == "Linear" else ()))), None)
        if new is None:
            raise ModelError(f"{params.path} loads {name!r}, which is not a weight of a CRDNN. {SUPPORTED}")
        yield new, tensor.float() if tensor.is_floating_point() else tensor


def _within_rnn(name: str) -> str:
    """A name as in a plain RNN: with `use_rnnp`, LSTM, linear and dropout layers are numbered after three others."""
    found = re.match(r"(\d+)\.(?:rnn\.(\w+)_l0|w\.)", name)
    if not found:
        return name
    layer, rest = (int(found[1]) - 3) // 3, name[found.end() :]
    return f"RNN.rnn.{found[2]}_l{layer}{rest}" if found[2] else f"RNN.w.{layer}.{rest}"


def _matches(name: str, rules: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for pattern, ours in rules:
        if re.match(pattern, name):
            yield re.sub(f"^{pattern}", ours, name)


def _token_output(params: Hyperparams) -> str:
    """The key of the linear layer that the searcher decodes with; the other one is CTC's."""
    return params.key_of(params.raw(f"{searcher_of(params)}.linear")) or "seq_lin"


def _shape(params: Hyperparams, names: list[str]) -> AedShape:
    by_kind = {params.name(name): params.arguments(name) for name in names}
    if not {"CRDNN", "AttentionalRNNDecoder", "Embedding"} <= by_kind.keys():
        raise ModelError(f"{params.path} describes {', '.join(filter(None, by_kind)) or 'no model'}. {SUPPORTED}")
    encoder, decoder, embedding = by_kind["CRDNN"], by_kind["AttentionalRNNDecoder"], by_kind["Embedding"]
    features = params.arguments(params.first_of("Fbank"))
    _require_supported(params, encoder, decoder)
    _require_features(params, features)
    blocks = number_of(params, encoder, "cnn_blocks", 2)
    tokens = number_of(params, embedding, "num_embeddings", 0)
    begin, end = ends_of(params, tokens)
    return AedShape(
        mels=number_of(params, features, "n_mels", 40),
        transform=number_of(params, features, "n_fft", 400),
        hop=round(SAMPLE_RATE / 1000 * _milliseconds(params, features, "hop_length", 10)),
        tokens=tokens,
        begin=begin,
        end=end,
        encoder=CrdnnShape(
            channels=numbers_of(params, encoder, "cnn_channels", (128, 256))[:blocks],
            kernel=numbers_of(params, encoder, "cnn_kernelsize", (3, 3))[0],
            frequency_pooling=numbers_of(params, encoder, "inter_layer_pooling_size", (2, 2))[:blocks],
            time_pooling=number_of(params, encoder, "time_pooling_size", 2),
            rnn_layers=number_of(params, encoder, "rnn_layers", 4),
            rnn_width=number_of(params, encoder, "rnn_neurons", 512),
            dnn_layers=number_of(params, encoder, "dnn_blocks", 2),
            width=number_of(params, encoder, "dnn_neurons", 512),
            is_rnn_projected=encoder.get("use_rnnp") is True,
        ),
        decoder=GruDecoderShape(
            embedding=number_of(params, embedding, "embedding_dim", 128),
            width=number_of(params, decoder, "hidden_size", 0),
            attention_width=number_of(params, decoder, "attn_dim", 0),
            attention_channels=number_of(params, decoder, "channels", 10),
            attention_reach=number_of(params, decoder, "kernel_size", 100),
        ),
    )


def _require_features(params: Hyperparams, features: dict[str, Value]) -> None:
    """Refuse features of another kind: the model would be given what it was not trained on."""
    if not params.first_of("Fbank"):
        raise ModelError(f"{params.path} has no Fbank features. {SUPPORTED}")
    transform = number_of(params, features, "n_fft", 400)
    expected: dict[str, tuple[Value, Value]] = {
        "sample_rate": (features.get("sample_rate", SAMPLE_RATE), SAMPLE_RATE),
        "win_length": (_milliseconds(params, features, "win_length", 25), transform / (SAMPLE_RATE / 1000)),
        "f_min": (features.get("f_min", 0), 0),
        "f_max": (features.get("f_max") or SAMPLE_RATE // 2, SAMPLE_RATE // 2),
        "deltas": (features.get("deltas", False), False),
        "context": (features.get("context", False), False),
        "filter_shape": (features.get("filter_shape", "triangular"), "triangular"),
    }
    _require_equal(params, expected)


def _milliseconds(params: Hyperparams, features: dict[str, Value], key: str, default: float) -> float:
    value = features.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1000:
        raise ModelError(f"{params.path} has {key}={value!r}; expected milliseconds.")
    return value


def _require_supported(params: Hyperparams, encoder: dict[str, Value], decoder: dict[str, Value]) -> None:
    rnn = encoder.get("rnn_class")
    kernel = numbers_of(params, encoder, "cnn_kernelsize", (3, 3))
    activation = encoder.get("activation")
    expected: dict[str, tuple[Value, Value]] = {
        "activation": (activation.name if isinstance(activation, Tagged) else activation or "LeakyReLU", "LeakyReLU"),
        "cnn_kernelsize": (kernel, (kernel[0],) * len(kernel)),
        "rnn_class": (rnn.name if isinstance(rnn, Tagged) else rnn, "LSTM"),
        "rnn_bidirectional": (encoder.get("rnn_bidirectional", True), True),
        "using_2d_pooling": (encoder.get("using_2d_pooling", False), False),
        "time_pooling": (encoder.get("time_pooling", False), True),
        "projection_dim": (encoder.get("projection_dim", -1), -1),
        "rnn_type": (decoder.get("rnn_type"), "gru"),
        "attn_type": (decoder.get("attn_type"), "location"),
        "num_layers": (decoder.get("num_layers", 1), 1),
        "scaling": (decoder.get("scaling", 1.0), 1.0),
    }
    _require_equal(params, expected)


def _require_equal(params: Hyperparams, expected: Mapping[str, tuple[Value, Value]]) -> None:
    for key, (found, wanted) in expected.items():
        if found != wanted:
            raise ModelError(f"{params.path} has {key}={found!r}; only {wanted!r} is supported. {SUPPORTED}")

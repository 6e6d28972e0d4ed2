"""OpenAI's own checkpoints in transformers' words: sizes, names of weights, and what a transcript never has."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from attune.errors import ModelError
from attune.families.whisper.labels import WhisperVocabulary
from attune.families.whisper.shape import WhisperShape

ENGLISH_ONLY = "English-only"
# What OpenAI published, by the number of tokens, and where <|endoftext|> and <|notimestamps|> stand in each.
_KINDS = {51_864: ENGLISH_ONLY, 51_865: "multilingual", 51_866: "multilingual as of large-v3"}
_KINDS_BY_TOKENS = {
    (50_256, 50_362): _KINDS[51_864],
    (50_257, 50_363): _KINDS[51_865],
    (50_257, 50_364): _KINDS[51_866],
}

_SIZES = (
    *("n_vocab", "n_mels", "n_audio_state", "n_audio_layer", "n_audio_head", "n_audio_ctx"),
    *("n_text_state", "n_text_layer", "n_text_head", "n_text_ctx"),
)
# OpenAI's part of a name → transformers'. The order matters: longer parts first.
_NAMES = {
    "blocks.": "layers.",
    "mlp_ln": "final_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "cross_attn": "encoder_attn",
    ".attn_ln": ".self_attn_layer_norm",
    ".attn.": ".self_attn.",
    ".query": ".q_proj",
    ".key": ".k_proj",
    ".value": ".v_proj",
    ".out.": ".out_proj.",
    "token_embedding": "embed_tokens",
    "positional_embedding": "embed_positions.weight",
    "encoder.ln_post": "encoder.layer_norm",
    "decoder.ln.": "decoder.layer_norm.",
}
# Sounds and layout that captions spell out, and speech does not.
_SYMBOLS = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    "<<",
    ">>",
    "<<<",
    ">>>",
    "--",
    "---",
    "-(",
    "-[",
    "('",
    '("',
    "((",
    "))",
]
_SYMBOLS += ["(((", ")))", "[[", "]]", "{{", "}}", "♪♪", "♪♪♪"]
_MUSIC = [*"♩♪♫♬♭♮♯"]


def require_same_kind(tokenizer: Path, vocabulary: WhisperVocabulary, path: Path, shape: WhisperShape) -> None:
    """Refuse a tokenizer whose tokens are not those of the weights: numbers would mean other words.

    A vocabulary of another size may be a padded one, and a tokenizer of other tokens one's own: those need only fit.
    """
    theirs = _KINDS_BY_TOKENS.get((vocabulary.end, vocabulary.without_timestamps))
    published = _KINDS.get(shape.vocabulary)
    # A padded vocabulary is taken for a multilingual one, whatever it was before.
    is_other = theirs != published if published else theirs == ENGLISH_ONLY and shape.is_multilingual
    if theirs and is_other:
        raise ModelError(
            f"{tokenizer} is the tokenizer of another Whisper: it is {theirs}, but {path} has {shape.vocabulary} "
            f"tokens ({published or 'multilingual'}). Use the tokenizer.json of the model that these weights come "
            "from."
        )
    highest = max(vocabulary.tokenizer.get_vocab().values())
    if max(highest, vocabulary.without_timestamps) >= shape.vocabulary:
        raise ModelError(
            f"{tokenizer} has token ids up to {highest}, but {path} has {shape.vocabulary} tokens. Use the "
            "tokenizer.json of the model that these weights come from."
        )


def config_of(dims: object, path: Path) -> dict[str, Any]:
    """The config.json for the sizes of a .pt file."""
    if not isinstance(dims, Mapping) or not all(type(dims.get(name)) is int for name in _SIZES):
        raise ModelError(
            f"{path} is not an OpenAI Whisper checkpoint: `dims` must have {', '.join(_SIZES)}, all numbers."
        )
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": dims["n_vocab"],
        "num_mel_bins": dims["n_mels"],
        "d_model": dims["n_audio_state"],
        "encoder_layers": dims["n_audio_layer"],
        "encoder_attention_heads": dims["n_audio_head"],
        "encoder_ffn_dim": 4 * dims["n_audio_state"],
        "decoder_layers": dims["n_text_layer"],
        "decoder_attention_heads": dims["n_text_head"],
        "decoder_ffn_dim": 4 * dims["n_text_state"],
        "max_source_positions": dims["n_audio_ctx"],
        "max_target_positions": dims["n_text_ctx"],
        "activation_function": "gelu",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "tie_word_embeddings": True,
    }


def renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under transformers' names."""
    return {_renamed(name): tensor for name, tensor in tensors.items()}


def generation_config_of(vocabulary: WhisperVocabulary, positions: int) -> dict[str, Any]:
    """The generation_config.json for a tokenizer: what decoding begins with, ends with and never emits."""
    made: dict[str, Any] = {
        "bos_token_id": vocabulary.end,
        "eos_token_id": vocabulary.end,
        "pad_token_id": vocabulary.end,
        "decoder_start_token_id": vocabulary.start,
        "no_timestamps_token_id": vocabulary.without_timestamps,
        "is_multilingual": vocabulary.is_multilingual,
        "max_length": positions,
        "suppress_tokens": sorted(_never_emitted(vocabulary)),
        "begin_suppress_tokens": [*vocabulary.spelled(" "), vocabulary.end],
    }
    if vocabulary.is_multilingual:
        made["lang_to_id"] = {f"<|{code}|>": number for code, number in vocabulary.languages.items()}
        made["task_to_id"] = dict(vocabulary.tasks)
    return made


def _renamed(name: str) -> str:
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _never_emitted(vocabulary: WhisperVocabulary) -> Iterator[int]:
    found = {vocabulary.spelled(text)[0] for text in (" -", " '")}
    for symbol in _SYMBOLS + _MUSIC:
        for tokens in (vocabulary.spelled(symbol), vocabulary.spelled(f" {symbol}")):
            if len(tokens) == 1 or symbol in _MUSIC:
                found.add(tokens[0])
    yield from found
    # The start, and all that stands between the languages and <|notimestamps|>.
    yield vocabulary.start
    yield from range(min(vocabulary.tasks.values()), vocabulary.without_timestamps)

"""What config.json says about a Whisper model, as far as attune needs to know."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attune.errors import ModelError

MULTILINGUAL_VOCABULARY = 51_865  # the smallest; English-only models have one token less


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes and dropout rates."""

    vocabulary: int
    mels: int
    width: int
    encoder_layers: int
    encoder_heads: int
    encoder_inner: int
    decoder_layers: int
    decoder_heads: int
    decoder_inner: int
    source_positions: int
    target_positions: int
    dropout: float
    attention_dropout: float
    activation_dropout: float

    @property
    def is_multilingual(self) -> bool:
        """Whether language and task are part of what the decoder is told."""
        return self.vocabulary >= MULTILINGUAL_VOCABULARY


def read_shape(path: Path) -> Shape:
    """The shape that a config.json of transformers describes."""
    try:
        written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if written.get("model_type") != "whisper":
        raise ModelError(
            f"{path} describes a model of type {written.get('model_type')!r}, where 'whisper' is expected."
        )
    if written.get("activation_function", "gelu") != "gelu":
        raise ModelError(f"{path} has the activation {written['activation_function']!r}; Whisper models have 'gelu'.")
    try:
        return Shape(
            vocabulary=written["vocab_size"],
            mels=written["num_mel_bins"],
            width=written["d_model"],
            encoder_layers=written["encoder_layers"],
            encoder_heads=written["encoder_attention_heads"],
            encoder_inner=written["encoder_ffn_dim"],
            decoder_layers=written["decoder_layers"],
            decoder_heads=written["decoder_attention_heads"],
            decoder_inner=written["decoder_ffn_dim"],
            source_positions=written["max_source_positions"],
            target_positions=written["max_target_positions"],
            dropout=written.get("dropout", 0.0),
            attention_dropout=written.get("attention_dropout", 0.0),
            activation_dropout=written.get("activation_dropout", 0.0),
        )
    except KeyError as missing:
        raise ModelError(f"{path} does not say {missing}. Is it the config.json of a Whisper model?") from missing

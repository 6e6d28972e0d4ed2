"""What config.json has about a Whisper model, as far as attune needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attune.errors import ModelError
from attune.families._json import read_json

if TYPE_CHECKING:
    from torch import Tensor

MULTILINGUAL_VOCABULARY = 51_865  # the smallest; English-only models have one token less

_SIZES = {  # attune's names and transformers'
    "vocabulary": "vocab_size",
    "mels": "num_mel_bins",
    "width": "d_model",
    "encoder_layers": "encoder_layers",
    "encoder_heads": "encoder_attention_heads",
    "encoder_inner": "encoder_ffn_dim",
    "decoder_layers": "decoder_layers",
    "decoder_heads": "decoder_attention_heads",
    "decoder_inner": "decoder_ffn_dim",
    "source_positions": "max_source_positions",
    "target_positions": "max_target_positions",
}
# Far beyond every Whisper there is: what a damaged config.json asks for would fill the memory before it is refused.
MOST_LAYERS, MOST_MELS, MOST_SIZE, MOST_WEIGHTS = 1000, 1000, 1_000_000, 10**10
SMALL = 10**8  # weights; below this a config.json is compared with its weights one by one


@dataclass(frozen=True, slots=True)
class WhisperShape:
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
        """Whether language and task are part of the prompt."""
        return self.vocabulary >= MULTILINGUAL_VOCABULARY

    @property
    def weights(self) -> int:
        """How many a model has at least."""
        layers = self.encoder_layers * (self.width + self.encoder_inner)
        layers += self.decoder_layers * (self.width + self.decoder_inner)
        positions = self.source_positions + self.target_positions
        return self.width * (self.width + layers + self.vocabulary + positions + self.mels)


def read_shape(path: Path) -> WhisperShape:
    """The shape that a config.json of transformers describes."""
    return shape_of(read_json(path), path)


def shape_of(written: Mapping[str, Any], path: Path) -> WhisperShape:
    """The shape that these values of a config.json describe; `path` is where they were found."""
    if written.get("model_type") != "whisper":
        raise ModelError(f"{path} has the model type {written.get('model_type')!r}; expected 'whisper'.")
    if written.get("activation_function", "gelu") != "gelu":
        raise ModelError(f"{path} has the activation {written['activation_function']!r}; expected 'gelu'.")
    sizes = {name: _size(written, key, path) for name, key in _SIZES.items()}
    if sizes["width"] < 4 or sizes["width"] % 2:  # positions are sines and cosines of several frequencies
        raise ModelError(f"{path} has d_model {sizes['width']}; expected an even number of at least 4.")
    for part in ("encoder", "decoder"):
        if sizes["width"] % sizes[f"{part}_heads"]:
            raise ModelError(
                f"{path} has {part}_attention_heads {sizes[f'{part}_heads']}, which do not divide d_model "
                f"{sizes['width']}. Is it the config.json of these weights?"
            )
    shape = WhisperShape(
        **sizes,
        dropout=_rate(written, "dropout", path),
        attention_dropout=_rate(written, "attention_dropout", path),
        activation_dropout=_rate(written, "activation_dropout", path),
    )
    if shape.weights > MOST_WEIGHTS:
        raise ModelError(
            f"{path} describes a model of {shape.weights:,} weights; attune reads at most {MOST_WEIGHTS:,}."
        )
    return shape


def require_described(shape: WhisperShape, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse a shape that needs far more weights than there are, before a model of that size is built."""
    found = sum(tensor.numel() for tensor in tensors.values())
    if shape.weights > max(SMALL, 2 * found):
        raise ModelError(
            f"{path} describes a model of at least {shape.weights:,} weights, but there are {found:,}. Is it the "
            "config.json of these weights?"
        )


def suppressed(written: Mapping[str, Any], name: str, shape: WhisperShape, path: Path) -> tuple[int, ...]:
    """A list of suppressed tokens; numbers that are no token's have nothing to suppress and are left out."""
    tokens = written.get(name) or []
    if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
        raise ModelError(f"{path} has {name} {tokens!r:.60}; expected a list of numbers.")
    return tuple(token for token in tokens if 0 <= token < shape.vocabulary)


def _size(written: Mapping[str, Any], key: str, path: Path) -> int:
    if key not in written:
        raise ModelError(f"{path} has no {key!r}. Is it the config.json of a Whisper model?")
    size = written[key]
    if type(size) is not int or size < 1:
        raise ModelError(f"{path} has {key} {size!r:.60}; expected a number of at least 1.")
    most = MOST_LAYERS if key.endswith("_layers") else MOST_MELS if key == "num_mel_bins" else MOST_SIZE
    if size > most:
        raise ModelError(f"{path} has {key} {size!r:.60}; expected at most {most:,}.")
    return size


def _rate(written: Mapping[str, Any], key: str, path: Path) -> float:
    rate = written.get(key, 0.0)
    if type(rate) not in (int, float) or not 0 <= rate <= 1:
        raise ModelError(f"{path} has {key} {rate!r:.60}; expected a number from 0 to 1.")
    return float(rate)

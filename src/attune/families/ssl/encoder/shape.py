"""What config.json says about an encoder of the wav2vec 2.0 kind, as far as attune needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attune.errors import ModelError

# Far beyond every encoder there is: what a damaged config.json asks for would fill the memory before it is refused.
MOST_LAYERS, MOST_SIZE, MOST_WEIGHTS = 1000, 1_000_000, 10**11
ACTIVATIONS = ("gelu", "relu", "silu", "swish")

Positions = Literal["plain", "gated", "relative", "relative_key", "rotary"]
"""Position information in attention: none, WavLM's gated buckets, Transformer-XL's, relative keys, rotary."""


@dataclass(frozen=True, slots=True)
class ConvShape:
    """One convolution of a front-end."""

    width: int
    kernel: int
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderShape:
    """Sizes, variants and dropout rates."""

    convs: tuple[ConvShape, ...]  # none: the input is frames of `input_width`
    input_width: int
    group_norm: bool  # of the first convolution; otherwise each has a layer norm
    conv_bias: bool
    norms_input: bool
    width: int
    layers: int
    heads: int
    inner: int
    kind: Literal["post", "pre", "conformer"]  # where the norms of a layer are
    causal_conv: bool  # of conformer layers: wav2vec2-BERT's, which also has a layer norm for a batch norm
    last_norm: bool  # the last layer's output is normed once more
    positions: Positions
    conv_positions: int  # the kernel of the positional convolution; 0: none
    conv_position_groups: int
    conv_position_layers: int  # 0: one with weight norm; otherwise data2vec's, one after the other
    conv_position_norm: bool  # a batch norm before it
    depthwise_kernel: int
    buckets: int
    bucket_distance: int
    left_distance: int
    right_distance: int
    rotary_base: float
    epsilon: float
    activation: str
    conv_activation: str
    dropout: float
    attention_dropout: float
    activation_dropout: float
    input_dropout: float
    conv_dropout: float

    @property
    def weights(self) -> int:
        """How many a model has at least."""
        return self.layers * self.width * (4 * self.width + 2 * self.inner)

    @property
    def stride(self) -> int:
        """Samples from one frame to the next."""
        found = 1
        for conv in self.convs:
            found *= conv.stride
        return found if self.convs else 320

    @property
    def least_samples(self) -> int:
        """The samples that one frame is made of."""
        found = 1
        for conv in reversed(self.convs):
            found = (found - 1) * conv.stride + conv.kernel
        return found


def shape_of(written: Mapping[str, Any], path: Path) -> EncoderShape:
    """The shape that these values of a config.json describe; `path` is where they were found."""
    values = _Values(written, path)
    model = str(written.get("model_type"))
    is_conformer = model in ("wav2vec2-conformer", "wav2vec2-bert")
    is_bert, is_data2vec = model == "wav2vec2-bert", model == "data2vec-audio"
    kind: Literal["post", "pre", "conformer"] = "conformer" if is_conformer else "post"
    if not is_conformer and not is_data2vec and values.flag("do_stable_layer_norm", False):
        kind = "pre"
    activation = "swish" if is_bert else "gelu"
    shape = EncoderShape(
        convs=() if is_bert else values.convs(),
        input_width=values.size("feature_projection_input_dim", 160) if is_bert else values.convs()[-1].width,
        group_norm=not is_bert
        and not is_data2vec
        and values.choice("feat_extract_norm", ("group", "layer")) == "group",
        conv_bias=values.flag("conv_bias", False),
        norms_input=values.flag("feat_proj_layer_norm", True),
        width=values.size("hidden_size", 1024 if is_bert else 768),
        layers=values.size("num_hidden_layers", 24 if is_bert else 12, MOST_LAYERS),
        heads=values.size("num_attention_heads", 16 if is_bert else 12),
        inner=values.size("intermediate_size", 4096 if is_bert else 3072),
        kind=kind,
        causal_conv=is_bert,
        last_norm=kind == "pre" or model == "wav2vec2-conformer",
        positions=_positions(values, model),
        conv_positions=0 if is_conformer else _position_kernel(values, is_data2vec),
        conv_position_groups=values.size("num_conv_pos_embedding_groups", 16),
        conv_position_layers=values.size("num_conv_pos_embeddings", 5, 100) if is_data2vec else 0,
        conv_position_norm=values.flag("conv_pos_batch_norm", False),
        depthwise_kernel=values.size("conv_depthwise_kernel_size", 31),
        buckets=values.size("num_buckets", 320),
        bucket_distance=values.size("max_bucket_distance", 800),
        left_distance=values.size("left_max_position_embeddings", 64),
        right_distance=values.size("right_max_position_embeddings", 8),
        rotary_base=float(values.size("rotary_embedding_base", 10_000)),
        epsilon=values.rate("layer_norm_eps", 1e-5),
        activation=values.choice("hidden_act", ACTIVATIONS, activation),
        conv_activation=values.choice("feat_extract_activation", ACTIVATIONS, "gelu"),
        dropout=values.rate("hidden_dropout", 0.1),
        attention_dropout=values.rate("attention_dropout", 0.1),
        activation_dropout=values.rate("activation_dropout", 0.1),
        input_dropout=values.rate("feat_proj_dropout", 0.0),
        conv_dropout=values.rate("conformer_conv_dropout", 0.1),
    )
    _require_consistent(shape, path)
    return shape


def _position_kernel(values: _Values, is_data2vec: bool) -> int:
    name, usual = ("conv_pos_kernel_size", 19) if is_data2vec else ("num_conv_pos_embeddings", 128)
    return values.size(name, usual)


def _positions(values: _Values, model: str) -> Positions:
    if model == "wavlm":
        return "gated"
    if model not in ("wav2vec2-conformer", "wav2vec2-bert"):
        return "plain"
    usual: Positions = "relative_key" if model == "wav2vec2-bert" else "relative"
    named = values.written.get("position_embeddings_type", usual)
    known: dict[str, Positions] = {"relative": "relative", "relative_key": "relative_key", "rotary": "rotary"}
    if named is None:
        return "plain"
    if not isinstance(named, str) or named not in known:
        raise ModelError(
            f"{values.path} has position_embeddings_type {named!r:.60}; expected {', '.join(known)} or null."
        )
    return known[named]


def _require_consistent(shape: EncoderShape, path: Path) -> None:
    if shape.width % shape.heads:
        raise ModelError(
            f"{path} has num_attention_heads {shape.heads}, which do not divide hidden_size {shape.width}. "
            "Is it the config.json of these weights?"
        )
    if shape.conv_positions and shape.width % shape.conv_position_groups:
        raise ModelError(
            f"{path} has num_conv_pos_embedding_groups {shape.conv_position_groups}, which do not divide hidden_size "
            f"{shape.width}. Is it the config.json of these weights?"
        )
    if shape.weights > MOST_WEIGHTS:
        raise ModelError(f"{path} describes a model of at least {shape.weights:,} weights, which is too many.")


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of a config.json, each checked as it is read."""

    written: Mapping[str, Any]
    path: Path

    def size(self, name: str, usual: int, most: int = MOST_SIZE) -> int:
        return self._size(name, self.written.get(name, usual), most)

    def flag(self, name: str, usual: bool) -> bool:
        found = self.written.get(name, usual)
        if not isinstance(found, bool):
            raise ModelError(f"{self.path} has {name} {found!r:.60}; expected true or false.")
        return found

    def rate(self, name: str, usual: float) -> float:
        found = self.written.get(name, usual)
        if not isinstance(found, int | float) or not 0 <= found < 1:
            raise ModelError(f"{self.path} has {name} {found!r:.60}; expected a number from 0 to 1.")
        return float(found)

    def choice(self, name: str, known: tuple[str, ...], usual: str | None = None) -> str:
        found = self.written.get(name, usual or known[0])
        if found not in known:
            raise ModelError(f"{self.path} has {name} {found!r:.60}; expected {', '.join(known)}.")
        return str(found)

    def convs(self) -> tuple[ConvShape, ...]:
        usual = {
            "conv_dim": [512] * 7,
            "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
            "conv_stride": [5, 2, 2, 2, 2, 2, 2],
        }
        lists = [self.written.get(name, default) for name, default in usual.items()]
        if not all(isinstance(each, list) and len(each) == len(lists[0]) > 0 for each in lists):
            raise ModelError(f"{self.path} has no {', '.join(usual)} of the same length. Download it again.")
        sizes = [[self._size(name, each, MOST_SIZE) for each in row] for name, row in zip(usual, lists, strict=True)]
        return tuple(ConvShape(*each) for each in zip(*sizes, strict=True))

    def _size(self, name: str, found: object, most: int) -> int:
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= most:
            raise ModelError(f"{self.path} has {name} {found!r:.60}; expected a number from 1 to {most:,}.")
        return found

"""What a NeMo configuration says about a transducer, as far as attune needs to know; what it cannot do is named.

A configuration is plain data (`Plain`): numbers may be text, as they are in a YAML file that is read without types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from attune.errors import ModelError
from attune.families._conformer_shape import ConformerShape, ContextShape
from attune.plain_yaml import Plain
from attune.types import SAMPLE_RATE

MOST_CONTEXT = 10_000  # frames
MOST_SIZE, MOST_LAYERS, MOST_WEIGHTS = 1_000_000, 1000, 10**10  # far beyond every model there is
Activation = Literal["relu", "tanh", "sigmoid"]

SUPPORTED = (
    "attune supports RNN-T and TDT models with SentencePiece tokens: ContextNet (ConvASREncoder), Conformer "
    "(striding) and FastConformer (dw_striding) encoders, LSTM and stateless prediction nets."
)


@dataclass(frozen=True, slots=True)
class FrontEndShape:
    """Log-mel energies: how many, of which windows, with how much noise in training."""

    bins: int
    window: int  # samples
    hop: int  # samples
    transform: int  # points of the Fourier transform
    dither: float
    preemphasis: float = 0.97
    is_normalized: bool = True  # over the utterance; what streams cannot be


@dataclass(frozen=True, slots=True)
class ContextNetBlockShape:
    """One block of a ContextNet: convolutions, squeeze-and-excitation, and a way around them."""

    filters: int
    repeat: int
    kernel: int
    stride: int
    dilation: int
    dropout: float
    residual: bool
    separable: bool
    squeeze: int | None  # the factor by which squeeze-and-excitation narrows
    strides_last: bool  # whether only the last convolution strides, or each
    residual_strides: bool


@dataclass(frozen=True, slots=True)
class ContextNetShape:
    """A ContextNet encoder."""

    bins: int
    activation: str
    blocks: tuple[ContextNetBlockShape, ...]

    @property
    def width(self) -> int:
        """Of the frames that come out."""
        return self.blocks[-1].filters

    @property
    def weights(self) -> int:
        """How many there are at least."""
        return sum((block.repeat - 1) * block.filters**2 + block.kernel * block.filters for block in self.blocks)


@dataclass(frozen=True, slots=True)
class PredictionShape:
    """A prediction net: LSTM layers, or (`context`) the embeddings of the last labels side by side."""

    width: int
    layers: int
    context: int | None
    has_norm: bool
    dropout: float


@dataclass(frozen=True, slots=True)
class JointShape:
    """How the two sides are joined."""

    width: int
    activation: Activation
    dropout: float


@dataclass(frozen=True, slots=True)
class LossShape:
    """What training adds to the plain likelihood."""

    fastemit: float = 0.0
    sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class TransducerShape:
    """A whole transducer, but for its tokens."""

    front_end: FrontEndShape
    encoder: ContextNetShape | ConformerShape
    prediction: PredictionShape
    joint: JointShape
    loss: LossShape
    durations: tuple[int, ...]

    @property
    def weights(self) -> int:
        """How many there are at least; the outputs depend on the tokens."""
        net, joint = self.prediction, self.joint.width * (self.encoder.width + self.prediction.width)
        return self.encoder.weights + 8 * net.layers * net.width**2 + net.width + joint


@dataclass(frozen=True, slots=True)
class _Section:
    """A section of a configuration, read key by key; `name` is for messages."""

    values: Mapping[str, Plain]
    name: str

    def section(self, key: str) -> _Section:
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise ModelError(f"The configuration has no section {self.name}{key}. {SUPPORTED}")
        return _Section(value, f"{self.name}{key}.")

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, dict | list) or value is None:
            raise ModelError(f"{self.name}{key} of the configuration is missing or not a single value.")
        return str(value)

    def number(self, key: str, default: float | None = None) -> float:
        text = self.text(key, None if default is None else str(default))
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ModelError(f"{self.name}{key} of the configuration is not a number: {text!r:.60}.")
        return number

    def whole(self, key: str, default: int | None = None, least: int = -1, most: int = MOST_SIZE) -> int:
        number = self.number(key, default)
        if not number.is_integer():
            raise ModelError(f"{self.name}{key} of the configuration is not a whole number: {self.text(key)!r:.60}.")
        if not least <= number <= most:
            raise ModelError(f"{self.name}{key} of the configuration is {number:g}; expected {least} to {most:,}.")
        return int(number)

    def size(self, key: str, default: int | None = None, most: int = MOST_SIZE) -> int:
        """A whole number of at least 1."""
        return self.whole(key, default, 1, most)

    def rate(self, key: str, default: float | None = None) -> float:
        """A number from 0 to 1."""
        rate = self.number(key, default)
        if not 0 <= rate <= 1:
            raise ModelError(f"{self.name}{key} of the configuration is {rate:g}; expected 0 to 1.")
        return rate

    def first(self, key: str) -> int:
        """The one number of a list, or a number."""
        value = self.values.get(key)
        return _Section({key: value[0]}, self.name).size(key) if isinstance(value, list) and value else self.size(key)

    def flag(self, key: str, default: bool) -> bool:
        return self.text(key, str(default)).lower() in ("true", "yes", "on", "1")

    def require(self, key: str, *allowed: str, default: str) -> str:
        found = self.text(key, default)
        if found not in allowed:
            raise ModelError(f"{self.name}{key} is {found!r}; attune supports {', '.join(allowed)}. {SUPPORTED}")
        return found

    def require_number(self, key: str, only: float) -> None:
        if not math.isclose(self.number(key, only), only, rel_tol=1e-6):
            raise ModelError(f"{self.name}{key} is {self.text(key)}; attune supports {only}. {SUPPORTED}")

    def kind(self) -> str:
        return self.text("_target_", "").rpartition(".")[2]


def read_shape(config: Mapping[str, Plain]) -> TransducerShape:
    """The shape that a configuration of NeMo's describes."""
    root = _Section(config, "")
    encoders: dict[str, Callable[[_Section], ContextNetShape | ConformerShape]] = {
        "ConvASREncoder": _contextnet,
        "ConformerEncoder": _conformer,
    }
    kind = root.section("encoder").kind()
    if kind not in encoders:
        raise ModelError(f"Unsupported encoder {kind or 'without a name'}. {SUPPORTED}")
    durations = _durations(root)
    shape = TransducerShape(
        _front_end(root.section("preprocessor")),
        encoders[kind](root.section("encoder")),
        _prediction(root.section("decoder")),
        _joint(root.section("joint")),
        _loss(root, durations),
        durations,
    )
    if shape.weights > MOST_WEIGHTS:
        raise ModelError(
            f"The configuration describes {shape.weights:,} weights; attune reads at most {MOST_WEIGHTS:,}."
        )
    return shape


def _front_end(section: _Section) -> FrontEndShape:
    normalize = section.require("normalize", "per_feature", "NA", "null", "None", default="per_feature")
    section.require("window", "hann", default="hann")
    section.require("frame_splicing", "1", default="1")
    section.require("log", "true", "True", default="true")
    section.require("log_zero_guard_type", "add", default="add")
    section.require("exact_pad", "false", "False", default="false")
    section.require_number("log_zero_guard_value", 2.0**-24)
    section.require_number("mag_power", 2.0)
    if section.whole("sample_rate", SAMPLE_RATE) != SAMPLE_RATE:
        raise ModelError(f"The model needs {section.text('sample_rate')} Hz audio; attune uses {SAMPLE_RATE} Hz.")
    window = section.size("n_window_size", round(section.number("window_size", 0.02) * SAMPLE_RATE))
    return FrontEndShape(
        is_normalized=normalize == "per_feature",
        bins=section.size("features", 64),
        window=window,
        hop=section.size("n_window_stride", round(section.number("window_stride", 0.01) * SAMPLE_RATE)),
        transform=section.size("n_fft") if section.has("n_fft") else 1 << (window - 1).bit_length(),
        dither=section.number("dither", 1e-5),
        preemphasis=section.number("preemph", 0.0 if "preemph" in section.values else 0.97),  # NeMo's null is none
    )


def _contextnet(section: _Section) -> ContextNetShape:
    section.require("normalization_mode", "batch", default="batch")
    section.require("conv_mask", "true", "True", default="true")
    blocks = section.values.get("jasper")
    if not isinstance(blocks, list) or not 0 < len(blocks) <= MOST_LAYERS:
        raise ModelError("encoder.jasper of the configuration is not a list of blocks.")
    mode, read = section.text("residual_mode", "add"), []
    for index, values in enumerate(blocks):
        block = _Section(values if isinstance(values, dict) else {}, f"encoder.jasper.{index}.")
        mode = block.text("residual_mode", mode)  # a block without one has that of the block before
        read.append(_block(block, mode))
    activation = section.require("activation", "relu", "swish", default="relu")
    return ContextNetShape(section.size("feat_in"), activation, tuple(read))


def _block(block: _Section, mode: str) -> ContextNetBlockShape:
    block.require("residual_dense", "false", "False", default="false")
    block.require("groups", "1", default="1")
    block.require("heads", "-1", default="-1")
    block.require("future_context", "-1", default="-1")
    block.require("se_context_size", "-1", default="-1")
    if mode not in ("add", "stride_add"):
        raise ModelError(f"{block.name}residual_mode is {mode!r}; attune supports add and stride_add.")
    kernel = max(int(block.first("kernel") * block.number("kernel_size_factor", 1.0)), 1)
    return ContextNetBlockShape(
        filters=block.size("filters"),
        repeat=block.size("repeat", most=MOST_LAYERS),
        kernel=kernel + (kernel % 2 == 0),
        stride=block.first("stride"),
        dilation=block.first("dilation"),
        dropout=block.rate("dropout"),
        residual=block.flag("residual", True),
        separable=block.flag("separable", False),
        squeeze=block.size("se_reduction_ratio", 8) if block.flag("se", False) else None,
        strides_last=block.flag("stride_last", False),
        residual_strides=mode == "stride_add",
    )


def _conformer(section: _Section) -> ConformerShape:
    section.require("self_attention_model", "rel_pos", default="rel_pos")
    section.require("untie_biases", "true", "True", default="true")
    section.require("stochastic_depth_drop_prob", "0.0", "0", default="0.0")
    if section.has("reduction") or section.whole("feat_out", -1) > 0:
        raise ModelError(f"The encoder has a reduction or a feat_out, which attune does not support. {SUPPORTED}")
    context = _context(section)
    is_causal = {section.flag("causal_downsampling", False), section.text("conv_context_size", "") == "causal"}
    if is_causal != {context is not None}:
        raise ModelError(f"Only a limited att_context_size goes with causal convolutions, and needs them. {SUPPORTED}")
    subsampling = section.require("subsampling", "striding", "dw_striding", default="striding")
    width, channels = section.size("d_model"), section.whole("subsampling_conv_channels", -1)
    return ConformerShape(
        bins=section.size("feat_in"),
        width=width,
        layers=section.size("n_layers", most=MOST_LAYERS),
        heads=section.size("n_heads", 4),
        inner=width * section.size("ff_expansion_factor", 4),
        kernel=section.size("conv_kernel_size", 31),
        subsampling="striding" if subsampling == "striding" else "dw_striding",
        factor=section.size("subsampling_factor", 4),
        channels=width if channels == -1 else channels,
        scales_input=section.flag("xscaling", True),
        has_bias=section.flag("use_bias", True),
        dropout=section.rate("dropout", 0.1),
        dropout_before=section.rate("dropout_pre_encoder", 0.1),
        dropout_positions=section.rate("dropout_emb", 0.1),
        dropout_attention=section.rate("dropout_att", 0.0),
        context=context,
        is_causal=context is not None,
        has_layer_norm=section.require("conv_norm_type", "batch_norm", "layer_norm", default="batch_norm")
        == "layer_norm",
    )


def _context(section: _Section) -> ContextShape | None:
    """What attention is limited to: [left, look-ahead], or a list of such pairs with one left for all."""
    written = section.values.get("att_context_size") or ["-1", "-1"]
    pairs = written if isinstance(written, list) and isinstance(written[0], list) else [written]
    read = [_pair(pair) for pair in pairs]
    lefts, look_aheads = {left for left, _ in read}, tuple(right for _, right in read)
    if (lefts, look_aheads) == ({-1}, (-1,)):
        return None
    section.require("att_context_style", "chunked_limited", default="regular")
    if (
        len(lefts) > 1
        or not -1 <= min(lefts) <= MOST_CONTEXT
        or not all(0 <= each <= MOST_CONTEXT for each in look_aheads)
    ):
        raise ModelError(f"encoder.att_context_size is {written}; attune supports one left context for all.")
    return ContextShape(lefts.pop(), look_aheads)


def _pair(written: Plain) -> tuple[int, int]:
    if not isinstance(written, list) or len(written) != 2:
        raise ModelError(f"encoder.att_context_size has {written}; expected [left, right].")
    left, right = (_Section({"att_context_size": side}, "encoder.").whole("att_context_size") for side in written)
    return left, right


def _prediction(section: _Section) -> PredictionShape:
    kind, net = section.kind(), section.section("prednet")
    if kind not in ("RNNTDecoder", "StatelessTransducerDecoder"):
        raise ModelError(f"Unsupported prediction net {kind or 'without a name'}. {SUPPORTED}")
    is_stateless = kind == "StatelessTransducerDecoder"
    if not is_stateless and (section.has("normalization_mode") or not section.flag("blank_as_pad", True)):
        raise ModelError("The LSTM prediction net has a norm, or no row for the blank, which attune does not support.")
    if net.whole("rnn_hidden_size", -1) > 0 and net.whole("rnn_hidden_size") != net.size("pred_hidden"):
        raise ModelError("The LSTM prediction net has a projection (rnn_hidden_size), which attune does not support.")
    return PredictionShape(
        width=net.size("pred_hidden"),
        layers=0 if is_stateless else net.size("pred_rnn_layers", 1, MOST_LAYERS),
        context=section.size("context_size", 1) if is_stateless else None,
        has_norm=is_stateless and section.require("normalization_mode", "None", "layer", default="None") == "layer",
        dropout=net.rate("dropout", 0.0),
    )


def _joint(section: _Section) -> JointShape:
    if section.kind() != "RNNTJoint":
        raise ModelError(f"Unsupported joint {section.kind() or 'without a name'}. {SUPPORTED}")
    net = section.section("jointnet")
    activations: dict[str, Activation] = {"relu": "relu", "tanh": "tanh", "sigmoid": "sigmoid"}
    activation = net.require("activation", *activations, default="relu")
    return JointShape(net.size("joint_hidden"), activations[activation], net.rate("dropout", 0.0))


def _durations(root: _Section) -> tuple[int, ...]:
    loss = root.values.get("loss")
    name = _Section(loss, "loss.").text("loss_name", "default") if isinstance(loss, dict) else "default"
    if name not in ("default", "warprnnt_numba", "warprnnt", "pytorch", "tdt", "tdt_pytorch", "graph_rnnt"):
        raise ModelError(f"Unsupported loss {name!r}. {SUPPORTED}")
    if not name.startswith("tdt"):
        return ()
    durations = root.section("loss").section("tdt_kwargs").values.get("durations")
    if not isinstance(durations, Sequence) or isinstance(durations, str) or not durations:
        raise ModelError("loss.tdt_kwargs.durations of the configuration is not a list of numbers.")
    read = tuple(_Section({"durations": each}, "loss.tdt_kwargs.").whole("durations") for each in durations)
    if 1 not in read:
        raise ModelError(f"The durations {read} have no 1; without it some utterances cannot be aligned.")
    return read


def _loss(root: _Section, durations: tuple[int, ...]) -> LossShape:
    key = "tdt_kwargs" if durations else "warprnnt_numba_kwargs"
    loss = root.values.get("loss")
    settings = loss.get(key) if isinstance(loss, dict) else None
    if not isinstance(settings, dict):
        return LossShape()
    section = _Section(settings, f"loss.{key}.")
    return LossShape(section.number("fastemit_lambda", 0.0), section.number("sigma", 0.0))

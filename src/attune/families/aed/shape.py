"""The sizes of an attention encoder-decoder: what `model.json` in a model's assets says, or a preset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from attune.errors import ModelError
from attune.files import write_text

FILE = "model.json"
MOST = 10**6
NEWER = {"is_rnn_projected"}  # which older files do not have


@dataclass(frozen=True, slots=True, kw_only=True)
class CrdnnShape:
    """Convolutions, a bidirectional LSTM and linear layers."""

    channels: tuple[int, ...] = (128, 256)
    kernel: int = 3
    frequency_pooling: tuple[int, ...] = (2, 2)
    time_pooling: int = 4
    rnn_layers: int = 4
    rnn_width: int = 1024
    dnn_layers: int = 2
    width: int = 512  # of the encoder's frames
    is_rnn_projected: bool = False  # each LSTM layer to that width
    dropout: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionEncoderShape:
    """Layers of self-attention over a quarter of the frames, with convolutions (Conformer) or without."""

    kind: Literal["conformer", "transformer"]
    width: int
    layers: int = 12
    heads: int = 4
    inner: int = 2048
    kernel: int = 31  # of a Conformer's convolutions
    channels: int = 64  # of the subsampling
    factor: int = 4
    dropout: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class GruDecoderShape:
    """A GRU cell with location-aware attention."""

    embedding: int = 128
    width: int = 1024
    attention_width: int = 1024
    attention_channels: int = 10
    attention_reach: int = 100  # frames to either side that the location features see
    dropout: float = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerDecoderShape:
    """Layers of self-attention and of attention to the encoder's frames, as wide as these."""

    layers: int = 6
    heads: int = 4
    inner: int = 2048
    dropout: float = 0.1


ENCODERS = (CrdnnShape, AttentionEncoderShape)
DECODERS = (GruDecoderShape, TransformerDecoderShape)


@dataclass(frozen=True, slots=True, kw_only=True)
class AedShape:
    """Features, encoder and decoder."""

    mels: int = 40
    transform: int = 400  # samples of a window
    hop: int = 160
    tokens: int = 1000
    begin: int = 0  # the token that begins a text
    end: int = 0
    encoder: CrdnnShape | AttentionEncoderShape = CrdnnShape()
    decoder: GruDecoderShape | TransformerDecoderShape = GruDecoderShape()

    def __post_init__(self) -> None:
        are_sizes = all(0 < size < MOST for size in _sizes(asdict(self)))
        if not are_sizes or not self._is_consistent or not all(0 <= mark < MOST for mark in (self.begin, self.end)):
            raise ModelError(f"Invalid sizes of an attention encoder-decoder: {self}.")

    @property
    def _is_consistent(self) -> bool:
        encoder, decoder = self.encoder, self.decoder
        heads = [part.heads for part in (encoder, decoder) if not isinstance(part, CrdnnShape | GruDecoderShape)]
        if isinstance(encoder, CrdnnShape) and len(encoder.channels) != len(encoder.frequency_pooling):
            return False
        return all(encoder.width % (2 * each) == 0 for each in heads)


def _sizes(values: Mapping[str, Any]) -> Iterator[int]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _sizes(value)
        elif name not in ("dropout", "kind", "begin", "end", "is_rnn_projected"):
            yield from value if isinstance(value, tuple) else (value,)


TINY_GRU = GruDecoderShape(embedding=16, width=32, attention_width=24)
TINY_TRANSFORMER = TransformerDecoderShape(layers=2, heads=2, inner=64)
PRESETS = {
    "librispeech": AedShape(),
    "small": AedShape(
        encoder=CrdnnShape(channels=(16, 32), rnn_layers=2, rnn_width=128, width=128),
        decoder=GruDecoderShape(embedding=32, width=128, attention_width=128),
    ),
    "tiny": AedShape(encoder=CrdnnShape(channels=(8, 16), rnn_layers=1, rnn_width=32, width=32), decoder=TINY_GRU),
    "transformer": AedShape(
        mels=80,
        tokens=5000,
        encoder=AttentionEncoderShape(kind="transformer", width=512),
        decoder=TransformerDecoderShape(),
    ),
    "conformer-small": AedShape(
        mels=80,
        transform=512,
        tokens=5000,
        encoder=AttentionEncoderShape(kind="conformer", width=144, inner=1024),
        decoder=TransformerDecoderShape(layers=4, inner=1024),
    ),
    "conformer-large": AedShape(
        mels=80,
        transform=512,
        tokens=5000,
        encoder=AttentionEncoderShape(kind="conformer", width=512, heads=8),
        decoder=TransformerDecoderShape(heads=8),
    ),
    "tiny-transformer": AedShape(
        encoder=AttentionEncoderShape(kind="transformer", width=32, layers=2, heads=2, inner=64, channels=8),
        decoder=TINY_TRANSFORMER,
    ),
    "tiny-conformer": AedShape(
        encoder=AttentionEncoderShape(kind="conformer", width=32, layers=2, heads=2, inner=64, channels=8, kernel=7),
        decoder=TINY_TRANSFORMER,
    ),
}


def write_shape(shape: AedShape, assets: Path) -> None:
    """Keep the sizes beside the weights."""
    write_text(assets / FILE, json.dumps(asdict(shape), indent=1) + "\n")


def read_shape(assets: Path) -> AedShape | None:
    """The sizes that came with the weights."""
    path = assets / FILE
    if not path.is_file():
        return None
    try:
        written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        parts = {"encoder": _part(written["encoder"], ENCODERS), "decoder": _part(written["decoder"], DECODERS)}
        return AedShape(**{**written, **parts})
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError(f"{path} does not describe an attention encoder-decoder: {error}.") from error


def _part(written: Any, kinds: tuple[type, ...]) -> Any:
    """The kind of encoder or decoder that has these sizes."""
    written = dict(written)
    for kind in kinds:
        names = {each.name for each in fields(kind)}
        if names - NEWER <= written.keys() <= names:
            return kind(**{name: tuple(each) if isinstance(each, list) else each for name, each in written.items()})
    raise ValueError(f"unknown sizes {', '.join(written)}")

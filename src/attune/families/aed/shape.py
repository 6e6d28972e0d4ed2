"""The sizes of an attention encoder-decoder: what `model.json` in a model's assets says, or a preset."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from attune.errors import ModelError
from attune.files import write_text

FILE = "model.json"


def _numbers(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AedShape:
    """A CRDNN encoder, a location-aware GRU decoder, and the language model that came with them."""

    mels: int = 40
    transform: int = 400  # samples of a window
    hop: int = 160
    channels: tuple[int, ...] = (128, 256)
    kernel: int = 3
    frequency_pooling: tuple[int, ...] = (2, 2)
    time_pooling: int = 4
    rnn_layers: int = 4
    rnn_width: int = 1024
    dnn_layers: int = 2
    width: int = 512  # of the encoder's frames
    embedding: int = 128
    decoder_width: int = 1024
    attention_width: int = 1024
    attention_channels: int = 10
    attention_reach: int = 100  # frames to either side that the location features see
    dropout: float = 0.15
    tokens: int = 1000

    def __post_init__(self) -> None:
        sizes = [
            value for each in fields(self) if each.name != "dropout" for value in _numbers(getattr(self, each.name))
        ]
        if any(not 0 < size < 10**6 for size in sizes) or len(self.channels) != len(self.frequency_pooling):
            raise ModelError(f"These are no sizes of an attention encoder-decoder: {self}.")


PRESETS = {
    "librispeech": AedShape(),
    "tiny": AedShape(
        channels=(8, 16), rnn_layers=1, rnn_width=32, width=32, embedding=16, decoder_width=32, attention_width=24
    ),
}  # fmt: skip


def write_shape(shape: AedShape, assets: Path) -> None:
    """Keep the sizes beside the weights."""
    write_text(assets / FILE, json.dumps(asdict(shape), indent=1) + "\n")


def read_shape(assets: Path) -> AedShape | None:
    """The sizes that came with the weights."""
    path = assets / FILE
    if not path.is_file():
        return None
    written: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    values: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in written.items()}
    try:
        return AedShape(**values)
    except TypeError as error:
        raise ModelError(f"{path} does not describe an attention encoder-decoder: {error}.") from error

"""Whisper's encoder as an upstream. Recordings end with silence up to what it holds (30 s), as Whisper was trained."""

# B batch, T samples, F frames, D width
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from attune.errors import ModelError
from attune.families._checkpoints import as_tensors, fitted, read_folder, read_pt
from attune.families._json import read_json, write_json
from attune.families.whisper.features import log_mel
from attune.families.whisper.layers import Encoder, sinusoids
from attune.families.whisper.openai import config_of, renamed
from attune.families.whisper.shape import WhisperShape, read_shape, require_described, shape_of
from attune.families.whisper.windows import attention_kernels
from attune.types import SAMPLE_RATE, Masks

CONFIG = "config.json"
PREFIX = "encoder."
STRIDE = 320


class WhisperUpstream(nn.Module):
    """The states of all layers of the encoder, cut to the frames of the recording."""

    applies_masks = False
    stride = STRIDE

    def __init__(self, shape: WhisperShape) -> None:
        super().__init__()
        self.bins, self.positions = shape.mels, shape.source_positions
        self.max_seconds: float | None = self.positions * STRIDE / SAMPLE_RATE  # 30 s of published ones
        self.widths: tuple[int, ...] = (shape.width,) * (shape.encoder_layers + 1)
        self.encoder = Encoder(shape, saves_memory=False, plans=True)
        with torch.no_grad():
            self.encoder.embed_positions.weight.copy_(sinusoids(shape.source_positions, shape.width))

    def forward(self, audio: Tensor, lengths: Tensor, masks: Masks | None = None) -> tuple[Iterator[Tensor], Tensor]:
        """The layers (B, F, D), computed as they are asked for, and the number of each row's own frames."""
        mels = log_mel(audio, lengths, self.bins, 2 * self.positions)
        counts = (-(-lengths // STRIDE)).clamp(min=1, max=self.positions)
        return self._states(mels, self.frames(audio.shape[1])), counts

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        return min(max(1, -(-samples // STRIDE)), self.positions)

    def _states(self, mels: Tensor, count: int) -> Iterator[Tensor]:
        steps = self.encoder.states(mels, None)
        for _ in self.widths:
            with attention_kernels(True, mels.device):
                states = next(steps)
            yield states[:, :count]


def build_whisper(assets: Path) -> WhisperUpstream:
    """The encoder that the files in `assets` describe, with random weights."""
    return WhisperUpstream(read_shape(assets / CONFIG))


def read_whisper(path: Path, assets: Path) -> Mapping[str, Tensor]:
    """The encoder of a transformers folder or of OpenAI's .pt file."""
    if path.is_dir():
        config, tensors = read_json(path / CONFIG), read_folder(path)
    else:
        loaded = read_pt(path)
        if not isinstance(loaded, dict) or not {"dims", "model_state_dict"} <= loaded.keys():
            raise ModelError(f"{path} is not a checkpoint of OpenAI's Whisper: it lacks `dims` or `model_state_dict`.")
        config = config_of(loaded["dims"], path)
        tensors = renamed(as_tensors(loaded["model_state_dict"], path))
    require_described(shape_of(config, path), tensors, path)
    write_json(assets / CONFIG, config)
    own = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    with torch.device("meta"):
        expected = build_whisper(assets).state_dict()
    return fitted({name: each for name, each in own.items() if name.startswith(PREFIX)}, expected, path)

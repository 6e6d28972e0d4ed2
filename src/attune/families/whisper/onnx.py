"""Whisper as two ONNX graphs: the encoder with what the decoder looks at, and one step of the decoder.

A step takes one token and the cache of those before it, and returns the cache with the token in it; the first cache is
empty. Keys and values of all layers are one tensor (L, 2, 1, H, F, D).
"""

# T samples, L layers, H heads, F frames, S tokens so far, D width of a head, V vocabulary
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families._onnx import OnnxGraph, batch_of_one, example_audio
from attune.families.whisper.features import LONGEST
from attune.families.whisper.layers import GrowingPast, KeysValues
from attune.families.whisper.model import WhisperModel


class WhisperEncoderGraph(nn.Module):
    """Samples, ended with silence, to what each layer of the decoder looks at."""

    def __init__(self, model: WhisperModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, audio: Tensor) -> Tensor:
        """Keys and values (L, 2, 1, H, F, D) of samples (1, T), of which there are no more than 30 s."""
        batch = batch_of_one(F.pad(audio, (0, LONGEST - audio.shape[1])))
        return stacked(self.model.model.decoder.project_encoded(self.model.encode(batch)[1]))


class WhisperDecoderGraph(nn.Module):
    """One step."""

    def __init__(self, model: WhisperModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, encoded: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (1, V) of what follows the token (1, 1), and the cache (L, 2, 1, H, S + 1, D)."""
        place = torch.full((1,), past.shape[4])
        caches = [GrowingPast(KeysValues(*each), place) for each in past]
        logits = self.model.model.decoder.advance(token, [KeysValues(*each) for each in encoded], None, caches)
        return logits, stacked([each.cache for each in caches])


def stacked(layers: list[KeysValues]) -> Tensor:
    """Keys and values of all layers in one tensor."""
    return torch.stack([torch.stack([each.keys, each.values]) for each in layers])


def whisper_graphs(model: WhisperModel) -> list[OnnxGraph]:
    """Both graphs."""
    shape, audio = model.shape, example_audio()
    heads = (shape.decoder_layers, 2, 1, shape.decoder_heads)
    width = shape.width // shape.decoder_heads
    step = {
        "token": torch.tensor([[model.rules.start]]),
        "encoded": torch.zeros(*heads, shape.source_positions, width),
        "past": torch.zeros(*heads, 3, width),
    }
    return [
        OnnxGraph("encoder", WhisperEncoderGraph(model), {"audio": audio}, ("encoded",), {"audio": 1}),
        OnnxGraph("decoder", WhisperDecoderGraph(model), step, ("logits", "present"), {"past": 4}),
    ]

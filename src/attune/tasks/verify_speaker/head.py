"""The x-vector head: time-delay layers, mean and deviation over time, an embedding, and AM-softmax over speakers."""

# B batch, F frames, D width, C speakers
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.scorers import EmbeddingScorer, ScorerKind
from attune.tasks._precision import as_precise
from attune.types import Batch, Loss

if TYPE_CHECKING:
    from attune.tasks.verify_speaker.settings import SpeakerHeadConfig

CONTEXTS = ((5, 1), (3, 2), (3, 3), (1, 1))  # frames and dilation of the time-delay layers before the last
FEWEST_FRAMES = 1 + sum((size - 1) * dilation for size, dilation in CONTEXTS)
SMALLEST = 1e-6


class SpeakerHead(nn.Module):
    """An embedding of each utterance."""

    scorer_kind: ScorerKind = "embedding"

    def __init__(self, width_in: int, speakers: int, settings: SpeakerHeadConfig) -> None:
        super().__init__()
        width = settings.width
        self.scale, self.margin = settings.scale, settings.margin
        self.projection = nn.Linear(width_in, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, size, dilation=dilation) for size, dilation in CONTEXTS)
        self.wide = nn.Linear(width, settings.pooled)
        self.embedding = nn.Linear(2 * settings.pooled, width)
        self.hidden = nn.Linear(width, width)
        self.output = nn.Linear(width, speakers, bias=False)
        for module in (self.projection, *self.layers, self.wide, self.embedding, self.hidden):
            _spread(module)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Embeddings (B, D), not yet of length 1."""
        frames = F.pad(frames, (0, 0, 0, max(0, FEWEST_FRAMES - frames.shape[1])))
        own = within(lengths, frames.shape[1])[..., None]
        hidden = (self.projection(frames) * own).transpose(1, 2)  # (B, D, F); a short row continues as silence
        for layer in self.layers:
            hidden = layer(hidden).relu()
        counts = lengths.clamp(min=FEWEST_FRAMES) - FEWEST_FRAMES + 1
        pooled = _statistics(self.wide(hidden.transpose(1, 2)).relu(), counts)
        embedded: Tensor = self.embedding(pooled).relu()
        return embedded

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """AM-softmax ("Additive Margin Softmax for Face Verification", 1801.05599), summed over utterances."""
        hidden = self.hidden(self(frames.to(self.output.weight.dtype), lengths)).relu().float()
        cosines = F.normalize(hidden, dim=1) @ F.normalize(self.output.weight.float(), dim=1).T  # (B, C)
        speakers = batch.tokens.ids[:, 0]
        margins = F.one_hot(speakers, cosines.shape[1]) * self.margin
        total = F.cross_entropy(self.scale * (cosines - margins), speakers, reduction="sum")
        return Loss(total, batch.tokens.lengths.sum())

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> EmbeddingScorer:
        """Embeddings of length 1."""
        return EmbeddingScorer(F.normalize(as_precise(self, frames)(frames, lengths), dim=1).float())


def _spread(layer: nn.Module) -> None:
    """He's initialization: with torch's own, embeddings of all speakers begin alike, and cosines take long to part."""
    if isinstance(layer, nn.Linear | nn.Conv1d) and layer.bias is not None:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)


def _statistics(frames: Tensor, lengths: Tensor) -> Tensor:
    """Mean and deviation (B, 2D) over each row's own frames."""
    own, counts = within(lengths, frames.shape[1])[..., None], lengths[:, None]
    mean = (frames * own).sum(1) / counts
    variance = (((frames - mean[:, None]) * own).square().sum(1) / counts).clamp(min=SMALLEST)
    return torch.cat([mean, variance.sqrt()], dim=1)

"""The example's head: the mean size of each feature over an utterance's own frames, and a linear layer."""

# B batch, F frames, D width, C classes
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.scorers import LabelScorer, ScorerKind
from attune.tasks._precision import as_precise
from attune.types import Batch, Loss


class ExampleHead(nn.Module):
    """Scores classes once for each utterance."""

    scorer_kind: ScorerKind = "label"

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, 32)
        self.output = nn.Linear(32, classes)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Logits (B, C). Frames beyond an utterance's own must not count: `lengths` says which they are."""
        own = within(lengths, frames.shape[1])[..., None]
        logits: Tensor = self.output((self.hidden(frames).relu() * own).sum(1) / lengths[:, None])
        return logits

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """A sum, never a mean, and what it is a sum over: the loop divides once, over all ranks."""
        logits = self(frames.to(self.output.weight.dtype), lengths).float()
        total = F.cross_entropy(logits, batch.tokens.ids[:, 0], reduction="sum")
        return Loss(total, batch.tokens.lengths.sum())

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> LabelScorer:
        """Log-probabilities of classes."""
        return LabelScorer(as_precise(self, frames)(frames, lengths).log_softmax(-1).float())

"""The label head: projection, mean over each utterance's own frames, and a distribution over labels."""

# B batch, F frames, D width, C classes
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.scorers import LabelScorer, ScorerKind
from attune.tasks._precision import as_precise
from attune.types import Batch, Loss


class LabelHead(nn.Module):
    """Scores labels once for each utterance."""

    scorer_kind: ScorerKind = "label"

    def __init__(self, width_in: int, width: int, labels: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width_in, width)
        self.output = nn.Linear(width, labels)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Logits (B, C)."""
        # Unlike SUPERB's head this one bends before the mean: features that are normalized by utterance have the
        # mean zero, and so has every linear map of them.
        hidden = self.projection(frames).relu() * within(lengths, frames.shape[1])[..., None]
        logits: Tensor = self.output(hidden.sum(1) / lengths[:, None])
        return logits

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """Cross-entropy, summed; the count is the number of utterances."""
        logits = self(frames.to(self.output.weight.dtype), lengths).float()
        total = F.cross_entropy(logits, batch.tokens.ids[:, 0], reduction="sum")
        return Loss(total, batch.tokens.lengths.sum())

    def scorer(self, frames: Tensor, lengths: Tensor) -> LabelScorer:
        """Log-probabilities of labels."""
        return LabelScorer(as_precise(self, frames)(frames, lengths).log_softmax(-1).float())

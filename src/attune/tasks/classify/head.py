"""The label head: projection, mean over each utterance's own frames, and a distribution over labels."""

# B batch, F frames, D width, C classes
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.scorers import LabelScorer, ScorerKind
from attune.tasks._precision import as_precise
from attune.types import Batch, Loss


class LabelHead(nn.Module):
    """Scores labels once for each utterance."""

    scorer_kind: ScorerKind = "label"

    def __init__(self, width_in: int, width: int, sizes: Sequence[int], bends: bool = True) -> None:
        super().__init__()
        self.sizes = list(sizes)  # how many values each label has
        self.bends = bends
        self.projection = nn.Linear(width_in, width)
        self.output = nn.Linear(width, sum(sizes))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Log-probabilities (B, C) of every combination of the labels' values, which are independent."""
        # Unlike SUPERB's head this one bends before the mean by default: features that are normalized by utterance have
        # the mean zero, and so has every linear map of them.
        projected = self.projection(frames)
        hidden = (projected.relu() if self.bends else projected) * within(lengths, frames.shape[1])[..., None]
        logits = self.output(hidden.sum(1) / lengths[:, None])
        logits = logits.float() if logits.dtype != torch.float64 else logits  # half precision is not enough here
        parts = [part.log_softmax(-1) for part in logits.split(self.sizes, dim=1)]
        together: Tensor = parts[0]
        for part in parts[1:]:
            together = (together[:, :, None] + part[:, None]).flatten(1)
        return together

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """Cross-entropy, summed; the count is the number of utterances."""
        log_probs = self(frames.to(self.output.weight.dtype), lengths)
        total = F.nll_loss(log_probs, batch.tokens.ids[:, 0], reduction="sum")
        return Loss(total, batch.tokens.lengths.sum())

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> LabelScorer:
        """Log-probabilities of labels."""
        return LabelScorer(as_precise(self, frames)(frames, lengths).float())

"""A head that learns nothing and gives the encoder's frames as they are."""

# B batch, F frames, D width
import torch
from torch import Tensor, nn

from attune.scorers import FeatureScorer, ScorerKind
from attune.types import Batch, Loss


class FrameHead(nn.Module):
    """The frames themselves."""

    scorer_kind: ScorerKind = "features"

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))  # the loop needs something that learns

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """Of nothing: one unit for each utterance, whatever it is."""
        return Loss((self.unused - 1).square() * len(lengths), torch.tensor(len(lengths), device=lengths.device))

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> FeatureScorer:
        """The frames."""
        return FeatureScorer(frames.float(), lengths)

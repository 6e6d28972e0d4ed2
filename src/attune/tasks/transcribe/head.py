"""The CTC head: projection, bidirectional LSTM layers, and a distribution over tokens for each frame."""

# B batch, F frames, D width, V vocabulary
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attune.kernels.onnx_lstm import onnx_lstm
from attune.scorers import CtcScorer, ScorerKind
from attune.tasks._precision import as_precise
from attune.types import Batch, Loss


class CtcHead(nn.Module):
    """Scores tokens frame by frame; token 0 is the blank."""

    scorer_kind: ScorerKind = "ctc"

    def __init__(self, width_in: int, width: int, layers: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.projection = nn.Linear(width_in, width)
        # Layers of their own, because the dropout inside a stack of layers keeps a random state on CUDA that
        # seeding does not reach.
        self.layers = nn.ModuleList(
            nn.LSTM(width if layer == 0 else 2 * width, width, bidirectional=True) for layer in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(2 * width if layers else width, vocabulary)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Logits (B, F, V)."""
        projected = self.projection(frames)
        if torch.compiler.is_exporting():  # one utterance without padding, and nothing to pack
            return self._alone(projected)
        packed = pack_padded_sequence(projected, lengths.cpu(), batch_first=True, enforce_sorted=False)
        for layer in self.layers:
            packed, _ = layer(packed._replace(data=self.dropout(packed.data)))
        hidden, _ = pad_packed_sequence(packed, batch_first=True, total_length=frames.shape[1])
        logits: Tensor = self.output(hidden)
        return logits

    def _alone(self, projected: Tensor) -> Tensor:
        hidden = projected.transpose(0, 1)
        for layer in self.layers:
            hidden = onnx_lstm(cast(nn.LSTM, layer), hidden)
        logits: Tensor = self.output(hidden.transpose(0, 1))
        return logits

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """CTC, summed; the count is the number of target tokens."""
        targets = batch.tokens
        log_probs = self(frames.to(self.output.weight.dtype), lengths).float().log_softmax(-1)
        # On the CPU, because CUDA adds up the gradient of CTC in a new order every time: other bits after each resume.
        total = F.ctc_loss(
            log_probs.transpose(0, 1).cpu(),
            targets.ids.cpu(),
            lengths.cpu(),
            targets.lengths.cpu(),
            reduction="sum",
        )
        return Loss(total.to(frames.device), targets.lengths.sum())

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> CtcScorer:
        """Log-probabilities of tokens, frame by frame."""
        log_probs = as_precise(self, frames)(frames, lengths).log_softmax(-1)
        return CtcScorer(log_probs.float(), lengths)

"""Recurrent language models: an embedding, LSTM layers and linear layers, as in SpeechBrain's RNNLM."""

# R rows, U tokens, L layers, D width, V vocabulary
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families.lm.transformer import TransformerLm
from attune.types import States


@dataclass(frozen=True, slots=True, kw_only=True)
class LmShape:
    """The sizes of a recurrent language model."""

    tokens: int
    embedding: int = 128
    rnn_layers: int = 2
    rnn_width: int = 2048
    dnn_layers: int = 1
    dnn_width: int = 512
    dropout: float = 0.0
    begin: int = 0  # the token that begins a text
    end: int = 0


class LmBlock(nn.Module):
    """A linear layer with a norm."""

    def __init__(self, width_in: int, width: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (R, U, D)."""
        activated: Tensor = self.dropout(F.leaky_relu(self.norm(self.linear(inputs))))
        return activated


class RecurrentLm(nn.Module):
    """Tokens in, logits of the next ones out; the shape says which token begins a text and which one ends it."""

    def __init__(self, shape: LmShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.tokens, shape.embedding)
        widths = [shape.embedding, *[shape.rnn_width] * (shape.rnn_layers - 1)]
        self.rnn = nn.ModuleList(nn.LSTM(width, shape.rnn_width, batch_first=True) for width in widths)
        widths = [shape.rnn_width, *[shape.dnn_width] * (shape.dnn_layers - 1)]
        self.dnn = nn.ModuleList(LmBlock(width, shape.dnn_width, shape.dropout) for width in widths)
        self.output = nn.Linear(shape.dnn_width, shape.tokens)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, tokens: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """Logits (R, U, V) of what follows each of the tokens (R, U), and the states after them, each (R, L, D)."""
        hidden, new = self.dropout(self.embedding(tokens)), []
        for number, layer in enumerate(self.rnn):
            old = tuple(state[:, number][None].contiguous() for state in states) if states else None
            hidden, state = layer(hidden, old)
            hidden = self.dropout(hidden) if number + 1 < len(self.rnn) else hidden
            new.append(tuple(each[0] for each in state))
        for block in self.dnn:
            hidden = block(hidden)
        return self.output(hidden), tuple(torch.stack(each, dim=1) for each in zip(*new, strict=True))


class FusedLm:
    """A LanguageModel for a beam whose token 0 is token `first` here: log-probabilities at a temperature."""

    def __init__(self, model: RecurrentLm | TransformerLm, first: int = 0, temperature: float = 1.0) -> None:
        self.model, self.first, self.temperature = model, first, temperature

    @torch.no_grad()
    def start(self, rows: int) -> tuple[Tensor, States]:
        """Those of the first token (R, V), and the states."""
        begin = torch.full((rows, 1), self.model.shape.begin, device=self.model.output.weight.device)
        return self._log_probs(*self.model(begin))

    @torch.no_grad()
    def score(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """Those of the next one (R, V) once each row has its next label (R,), and the new states."""
        return self._log_probs(*self.model(labels[:, None] + self.first, states))

    def _log_probs(self, logits: Tensor, states: States) -> tuple[Tensor, States]:
        return (logits[:, 0].float() / self.temperature).log_softmax(-1)[:, self.first :], states

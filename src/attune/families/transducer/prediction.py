"""Prediction nets: what the labels so far say about the next. The blank is the last row of an embedding, all zeros.

The names of their weights are NeMo's, but for the LSTM layers, which are numbered (`weights.py` renames them).
"""

# B batch, U labels of an utterance, R rows of a search, P width, L layers
import torch
from torch import Tensor, nn

from attune.families.transducer.shape import PredictionShape
from attune.types import States


class LstmLayers(nn.Module):
    """LSTM layers with dropout after each."""

    def __init__(self, shape: PredictionShape) -> None:
        super().__init__()
        # Layers of their own, because the dropout inside a stack of layers keeps a random state on CUDA that
        # seeding does not reach.
        self.lstm = nn.ModuleList(_lstm(shape.width) for _ in range(shape.layers))
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, inputs: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """Outputs (R, U, P), and the states after them, each (R, L, P)."""
        new: list[tuple[Tensor, Tensor]] = []
        # Autocast on CUDA would make it float16 whatever type was asked for, and copy all weights at every call.
        with torch.autocast(inputs.device.type, enabled=False):
            for index, layer in enumerate(self.lstm):
                old = tuple(state[:, index][None].contiguous() for state in states) if states else None
                inputs, (hidden, cell) = layer(inputs, old)
                inputs = self.dropout(inputs)
                new.append((hidden[0], cell[0]))
        hiddens, cells = zip(*new, strict=True)
        return inputs, (torch.stack(hiddens, dim=1), torch.stack(cells, dim=1))


class LstmNet(nn.Module):
    """An embedding and LSTM layers."""

    def __init__(self, labels: int, shape: PredictionShape) -> None:
        super().__init__()
        self.embed = _embedding(labels, shape.width)
        self.dec_rnn = LstmLayers(shape)

    def forward(self, labels: Tensor) -> Tensor:
        """What it says (B, U + 1, P) before the first and after each of the labels (B, U)."""
        embedded = self.embed(labels)
        start = embedded.new_zeros(len(labels), 1, embedded.shape[2])
        predicted: Tensor = self.dec_rnn(torch.cat([start, embedded], dim=1))[0]
        return predicted

    def start(self, rows: int) -> tuple[Tensor, States]:
        """What it says (R, P) before any label, and its states."""
        predicted, states = self.dec_rnn(self.embed.weight.new_zeros(rows, 1, self.embed.embedding_dim))
        return predicted[:, 0], states

    def advance(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """What it says (R, P) after the next labels (R,), and the new states."""
        predicted, states = self.dec_rnn(self.embed(labels)[:, None], states)
        return predicted[:, 0], states


class StatelessNet(nn.Module):
    """The embeddings of the last labels side by side; the newest has more than half of the width."""

    def __init__(self, labels: int, context: int, shape: PredictionShape) -> None:
        super().__init__()
        older = shape.width // 2 // context
        widths = [shape.width - older * (context - 1), *[older] * (context - 1)]
        self.embeds = nn.ModuleList(_embedding(labels, width) for width in widths)
        self.norm = nn.LayerNorm(shape.width, elementwise_affine=False) if shape.has_norm else nn.Identity()
        self.dropout = nn.Dropout(shape.dropout)
        self.blank = labels

    def forward(self, labels: Tensor) -> Tensor:
        """What it says (B, U + 1, P) before the first and after each of the labels (B, U)."""
        context = len(self.embeds)
        before = labels.new_full((len(labels), context), self.blank)
        # The first window has no label yet. It is there because no window fits where no utterance has a label.
        predicted = self._predict(torch.cat([before, labels], dim=1).unfold(1, context, 1)[:, 1:])
        return torch.cat([predicted.new_zeros(len(predicted), 1, predicted.shape[2]), predicted], dim=1)

    def start(self, rows: int) -> tuple[Tensor, States]:
        """What it says (R, P) before any label, and its states: the labels before the next."""
        weight: Tensor = self.embeds[0].weight  # type: ignore[assignment]
        width = sum(embed.embedding_dim for embed in self.embeds)  # type: ignore[misc]
        before = torch.full((rows, len(self.embeds) - 1), self.blank, device=weight.device)
        return weight.new_zeros(rows, width), (before,)

    def advance(self, labels: Tensor, states: States) -> tuple[Tensor, States]:
        """What it says (R, P) after the next labels (R,), and the new states."""
        context_labels = torch.cat([states[0], labels[:, None]], dim=1)
        return self._predict(context_labels), (context_labels[:, 1:],)

    def _predict(self, context_labels: Tensor) -> Tensor:
        """What follows each of the contexts (…, C), newest last."""
        embedded = [embed(context_labels[..., -1 - place]) for place, embed in enumerate(self.embeds)]
        predicted: Tensor = self.norm(self.dropout(torch.cat(embedded, dim=-1)))
        return predicted


class PredictionNet(nn.Module):
    """A prediction net under the name it has in NeMo."""

    def __init__(self, labels: int, shape: PredictionShape) -> None:
        super().__init__()
        self.prediction = StatelessNet(labels, shape.context, shape) if shape.context else LstmNet(labels, shape)


def _embedding(labels: int, width: int) -> nn.Embedding:
    return nn.Embedding(labels + 1, width, padding_idx=labels)


def _lstm(width: int) -> nn.LSTM:
    """A layer that remembers at first: its forget gate begins open."""
    layer = nn.LSTM(width, width, batch_first=True)
    for name, value in (("bias_ih_l0", 1.0), ("bias_hh_l0", 0.0)):
        nn.init.constant_(layer.get_parameter(name)[width : 2 * width], value)
    return layer

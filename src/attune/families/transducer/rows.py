"""Another vocabulary on pretrained weights: rows go by what they stand for, never by their number.

A piece that both vocabularies have keeps its rows in the embedding and in the output; so do the blank and the
durations. All other rows are randomly initialized, with the mean and the deviation of the pretrained rows in each
column; their biases are the mean of those there were. The draw is that of the model's fresh rows, so the recipe's seed
decides it.
"""

# V labels, P width
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attune.contracts import RemappedWeights
from attune.families.transducer.model import TransducerModel
from attune.families.transducer.vocabulary import pieces_of

OUTPUT_WEIGHT, OUTPUT_BIAS = "joint.output.weight", "joint.output.bias"


def move_rows(model: TransducerModel, tensors: Mapping[str, Tensor], task: Path, assets: Path) -> RemappedWeights:
    """The tensors with their rows where `model` has their pieces; `task` and `assets` tell what they were before."""
    old, new = pieces_of(task, assets), model.pieces
    if old == new:
        return RemappedWeights(tensors)
    moves = _RowMap.between(old, new)
    fresh = model.state_dict()
    named = [name for name in tensors if ".embed" in f".{name}" and name.startswith("decoder.")]
    moved = {name: moves.moved(tensors[name], fresh[name]) for name in named}
    moved[OUTPUT_WEIGHT] = moves.moved(tensors[OUTPUT_WEIGHT], fresh[OUTPUT_WEIGHT])
    moved[OUTPUT_BIAS] = moves.moved(tensors[OUTPUT_BIAS][:, None], fresh[OUTPUT_BIAS][:, None] * 0)[:, 0]
    note = (
        f"tokens: {len(moves.to)} of {len(new)} reuse pretrained embeddings (of {len(old)} tokens), "
        f"{len(new) - len(moves.to)} are randomly initialized"
    )
    return RemappedWeights({**tensors, **moved}, tuple(sorted(moved)), note)


@dataclass(frozen=True, slots=True)
class _RowMap:
    """Which old row goes where."""

    source: Tensor
    to: Tensor
    old: int  # how many labels there were
    new: int

    @classmethod
    def between(cls, old: Sequence[str], new: Sequence[str]) -> "_RowMap":
        places = {piece: row for row, piece in enumerate(old)}
        pairs = [(places[piece], row) for row, piece in enumerate(new) if piece in places]
        source, to = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).unbind(1)
        return cls(source, to, len(old), len(new))

    def moved(self, rows: Tensor, fresh: Tensor) -> Tensor:
        """Rows (V + 1 + D, P): labels, then the blank and any durations, which stay as they are."""
        return torch.cat([self._labels(rows, fresh), rows[self.old :]])

    def _labels(self, rows: Tensor, fresh: Tensor) -> Tensor:
        old = rows[: self.old]
        draw = fresh[: self.new] / fresh[: self.new].std().clamp(min=1e-12)
        labels = old.mean(0) + old.std(0) * draw
        labels[self.to] = old[self.source]
        return labels

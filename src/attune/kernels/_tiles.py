"""The joint network tile by tile in plain torch: a few frames of one utterance with all its labels at a time.

Tiles depend on an utterance's own lengths only, so that its results are bit-identical in any batch.
"""

# B utterances, T frames, U labels, J joint width, O outputs (tokens, blank, durations), R lattice cells
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attune.kernels._lattice import NEG_INF, Cells, Extent, Lattice, posteriors
from attune.kernels._reference import ACTIVATIONS

TILE_CELLS = 1024  # the outputs of this many cells fit into a core's cache
# A cell with an occupancy below this fraction of a rounding error is left out of the gradients: the occupancies of each
# label, and (with blanks of one frame) of each frame, sum to one.
NEGLIGIBLE = 2.0**-17


@dataclass(frozen=True, slots=True)
class JointWeights:
    """The joint network's inputs and weights in the compute dtype, and the targets."""

    encoded: Tensor  # (B, T, J)
    predicted: Tensor  # (B, U + 1, J)
    weight: Tensor  # (O, J)
    bias: Tensor  # (O,)
    targets: Tensor  # (B, U)
    extent: Extent
    lattice: Lattice
    at_once: int | None = None  # cells whose outputs may be in memory at once; None: the fastest number


@dataclass(frozen=True, slots=True)
class JointGradients:
    """Gradients of the joint network's inputs and weights, in the accumulation dtype."""

    encoded: Tensor
    predicted: Tensor
    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, slots=True)
class _Tile:
    """Some frames of an utterance with some of its labels."""

    utterance: int
    frames: slice
    labels: slice
    cells: Tensor  # (frames, labels) numbers of the cells

    def hidden(self, joint: JointWeights) -> Tensor:
        frames = joint.encoded[self.utterance, self.frames, None]
        return ACTIVATIONS[joint.lattice.activation](frames + joint.predicted[self.utterance, None, self.labels])

    def next_labels(self, joint: JointWeights) -> Tensor:
        """The next label of each cell (cells, 1); after the last one any token, as it is never read."""
        targets = joint.targets[self.utterance, : joint.extent.labels[self.utterance]]
        padded = torch.cat([targets, targets.new_zeros(1)])[self.labels]
        return padded.expand(self.cells.shape).reshape(-1, 1)


def forward(joint: JointWeights) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The log-probability of each target (B,), and what `backward` needs: a few numbers for each cell."""
    total, occupancy = posteriors(log_probs(joint), joint.extent, joint.lattice)
    return total, (occupancy.blank, occupancy.label, occupancy.durations)


def backward(joint: JointWeights, saved: tuple[Tensor, ...], scale: Tensor) -> JointGradients:
    """The gradients, given those of the losses (B,)."""
    return gradients(joint, Cells(*saved), scale)


def log_probs(joint: JointWeights) -> Cells:
    """The log-probabilities of each cell's blank, label and durations."""
    lattice, rows = joint.lattice, joint.extent.rows
    found = Cells(
        joint.encoded.new_empty(rows),
        joint.encoded.new_empty(rows),
        joint.encoded.new_empty(rows, len(lattice.durations)),
    )
    for utterance in range(len(joint.extent.frames)):
        for tile in _whole_tiles(joint, utterance):
            outputs = torch.addmm(joint.bias, tile.hidden(joint).flatten(0, 1), joint.weight.T)
            tokens = outputs[:, : lattice.blank + 1].log_softmax(1)
            label = tokens.gather(1, tile.next_labels(joint)).view_as(tile.cells) - lattice.sigma
            if tile.labels.stop > joint.extent.labels[utterance]:
                label[:, -1] = NEG_INF
            cells = tile.cells.flatten()
            found.label[cells] = label.flatten()
            found.blank[cells] = tokens[:, lattice.blank] - lattice.sigma
            if lattice.durations:
                found.durations[cells] = outputs[:, lattice.blank + 1 :].log_softmax(1)
    return found


def gradients(joint: JointWeights, occupancy: Cells, scale: Tensor) -> JointGradients:
    """Gradients, given those of the losses, `scale` (B,), and the occupancy of each arc; outputs are recomputed."""
    parts = (joint.encoded, joint.predicted, joint.weight, joint.bias)
    found = JointGradients(*(torch.zeros_like(part) for part in parts))
    for utterance in range(len(joint.extent.frames)):
        for tile in _passed_tiles(joint, occupancy, utterance):
            hidden = tile.hidden(joint)
            output_grad = _outputs_gradient(joint, tile, hidden.flatten(0, 1), occupancy).mul_(scale[utterance])
            found.weight.addmm_(output_grad.T, hidden.flatten(0, 1))
            found.bias.add_(output_grad.sum(0))
            inner = _activation_backward(joint.lattice, hidden, (output_grad @ joint.weight).view_as(hidden))
            found.encoded[utterance, tile.frames] += inner.sum(1)
            found.predicted[utterance, tile.labels] += inner.sum(0)
    return found


def _outputs_gradient(joint: JointWeights, tile: _Tile, hidden: Tensor, occupancy: Cells) -> Tensor:
    """The gradient of the tile's outputs (cells, O): softmax × the cell's occupancy − the occupancy of each arc."""
    blank, cells = joint.lattice.blank, tile.cells.flatten()
    outputs = torch.addmm(joint.bias, hidden, joint.weight.T)
    label, blanks = occupancy.label[cells, None], occupancy.blank[cells, None]
    tokens = outputs[:, : blank + 1].softmax(1).mul_(label + blanks)
    tokens.scatter_add_(1, tile.next_labels(joint), -label)
    tokens[:, blank:] -= blanks
    if not joint.lattice.durations:
        return tokens
    taken = occupancy.durations[cells]
    durations = outputs[:, blank + 1 :].softmax(1) * taken.sum(1, keepdim=True) - taken
    return torch.cat([tokens, durations], 1)


def _activation_backward(lattice: Lattice, hidden: Tensor, gradient: Tensor) -> Tensor:
    """The gradient before the activation, given the activation's value."""
    match lattice.activation:
        case "relu":
            return gradient.masked_fill_(hidden <= 0, 0)
        case "tanh":
            return gradient * (1 - hidden * hidden)
        case "sigmoid":
            return gradient * hidden * (1 - hidden)


def _whole_tiles(joint: JointWeights, utterance: int) -> Iterator[_Tile]:
    """All of an utterance's cells."""
    numbers = _numbers(joint, utterance)
    frames, labels = numbers.shape
    step = _frames_at_once(joint, labels)
    for start in range(0, frames, step):
        chosen = slice(start, min(start + step, frames))
        yield _Tile(utterance, chosen, slice(0, labels), numbers[chosen])


def _passed_tiles(joint: JointWeights, occupancy: Cells, utterance: int) -> Iterator[_Tile]:
    """The cells with a non-negligible occupancy, in tiles as narrow as possible."""
    numbers = _numbers(joint, utterance)
    passed = (occupancy.blank + occupancy.label)[numbers] > NEGLIGIBLE * torch.finfo(occupancy.blank.dtype).eps
    step = _frames_at_once(joint, numbers.shape[1])
    for start in range(0, numbers.shape[0], step):
        chosen = slice(start, min(start + step, numbers.shape[0]))
        labels = passed[chosen].any(0).nonzero()
        if len(labels):
            near = slice(int(labels[0]), int(labels[-1]) + 1)
            yield _Tile(utterance, chosen, near, numbers[chosen, near])


def _frames_at_once(joint: JointWeights, labels: int) -> int:
    return max(1, min(TILE_CELLS, joint.at_once or TILE_CELLS) // labels)


def _numbers(joint: JointWeights, utterance: int) -> Tensor:
    """The cells of an utterance (frames, labels + 1)."""
    start, size = joint.extent.starts[utterance], joint.extent.sizes[utterance]
    cells = torch.arange(start, start + size, device=joint.encoded.device)
    return cells.view(joint.extent.frames[utterance], joint.extent.labels[utterance] + 1)

"""The joint network tile by tile in plain torch: a few frames of one utterance with all its labels at a time.

Tiles are cut by an utterance's own lengths, so that its results are the same bits whoever shares its batch.
"""

# B utterances, T frames, U labels, J joint width, O outputs (tokens, blank, durations), R lattice cells
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attune.kernels._lattice import IMPOSSIBLE, Cells, Extent, Lattice, posteriors
from attune.kernels._reference import ACTIVATIONS

TILE_CELLS = 1024  # the outputs of so many cells stay in a core's cache
# A cell passed with less probability than this share of a rounding error is left out of the gradients: all paths
# together pass every label, and (with blanks of one frame) every frame, with probability one.
NEGLIGIBLE = 2.0**-17


@dataclass(frozen=True, slots=True)
class JointWeights:
    """The joint network's inputs and weights in the type it computes in, and what the lattice must spell."""

    encoded: Tensor  # (B, T, J)
    predicted: Tensor  # (B, U + 1, J)
    weight: Tensor  # (O, J)
    bias: Tensor  # (O,)
    targets: Tensor  # (B, U)
    extent: Extent
    lattice: Lattice
    at_once: int | None = None  # cells whose outputs may be there together; None: as many as is quickest


@dataclass(frozen=True, slots=True)
class JointGradients:
    """Of the joint network's inputs and weights, in the type that sums are kept in."""

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
        """What each cell may say next (cells, 1); where all is said, any token: nothing is read there."""
        targets = joint.targets[self.utterance, : joint.extent.labels[self.utterance]]
        padded = torch.cat([targets, targets.new_zeros(1)])[self.labels]
        return padded.expand(self.cells.shape).reshape(-1, 1)


def forward(joint: JointWeights) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The log-probability of each target (B,), and what `backward` needs: a few numbers for each cell."""
    total, shares = posteriors(log_probs(joint), joint.extent, joint.lattice)
    return total, (shares.blank, shares.label, shares.durations)


def backward(joint: JointWeights, saved: tuple[Tensor, ...], scale: Tensor) -> JointGradients:
    """The gradients, given those of the losses (B,)."""
    return gradients(joint, Cells(*saved), scale)


def log_probs(joint: JointWeights) -> Cells:
    """Each cell's log-probabilities of what its arcs need."""
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
                label[:, -1] = IMPOSSIBLE
            cells = tile.cells.flatten()
            found.label[cells] = label.flatten()
            found.blank[cells] = tokens[:, lattice.blank] - lattice.sigma
            if lattice.durations:
                found.durations[cells] = outputs[:, lattice.blank + 1 :].log_softmax(1)
    return found


def gradients(joint: JointWeights, shares: Cells, scale: Tensor) -> JointGradients:
    """What the losses' gradients `scale` (B,) come to, given the share of each arc; the outputs are computed again."""
    parts = (joint.encoded, joint.predicted, joint.weight, joint.bias)
    found = JointGradients(*(torch.zeros_like(part) for part in parts))
    for utterance in range(len(joint.extent.frames)):
        for tile in _passed_tiles(joint, shares, utterance):
            hidden = tile.hidden(joint)
            wrong = _outputs_gradient(joint, tile, hidden.flatten(0, 1), shares).mul_(scale[utterance])
            found.weight.addmm_(wrong.T, hidden.flatten(0, 1))
            found.bias.add_(wrong.sum(0))
            inner = _through(joint.lattice, hidden, (wrong @ joint.weight).view_as(hidden))
            found.encoded[utterance, tile.frames] += inner.sum(1)
            found.predicted[utterance, tile.labels] += inner.sum(0)
    return found


def _outputs_gradient(joint: JointWeights, tile: _Tile, hidden: Tensor, shares: Cells) -> Tensor:
    """The gradient of the tile's outputs (cells, O): how often a cell is passed × what it says − what it should say."""
    blank, cells = joint.lattice.blank, tile.cells.flatten()
    outputs = torch.addmm(joint.bias, hidden, joint.weight.T)
    label, stays = shares.label[cells, None], shares.blank[cells, None]
    tokens = outputs[:, : blank + 1].softmax(1).mul_(label + stays)
    tokens.scatter_add_(1, tile.next_labels(joint), -label)
    tokens[:, blank:] -= stays
    if not joint.lattice.durations:
        return tokens
    taken = shares.durations[cells]
    durations = outputs[:, blank + 1 :].softmax(1) * taken.sum(1, keepdim=True) - taken
    return torch.cat([tokens, durations], 1)


def _through(lattice: Lattice, hidden: Tensor, gradient: Tensor) -> Tensor:
    """Back through the activation, given its value."""
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


def _passed_tiles(joint: JointWeights, shares: Cells, utterance: int) -> Iterator[_Tile]:
    """Those of an utterance's cells that paths really pass, in tiles as narrow as that allows."""
    numbers = _numbers(joint, utterance)
    passed = (shares.blank + shares.label)[numbers] > NEGLIGIBLE * torch.finfo(shares.blank.dtype).eps
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

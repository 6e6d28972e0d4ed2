"""The transducer loss by definition: the whole lattice, every token of every cell, autograd gradients.

The reference that the memory-efficient versions are tested against. Memory grows with frames × labels × tokens.
"""

import torch
from torch import Tensor

from attune.kernels._lattice import Lattice, arcs_of

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


def transducer_reference(
    encoded: Tensor,
    predicted: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    lattice: Lattice,
) -> Tensor:
    """The negative log-likelihood of each target (B,); see `transducer_loss`."""
    losses = []
    for row, (frames, labels) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True)):
        hidden = ACTIVATIONS[lattice.activation](encoded[row, :frames, None] + predicted[row, None, : labels + 1])
        losses.append(-log_likelihood(hidden @ weight.T + bias, targets[row, :labels].tolist(), lattice))
    return torch.stack(losses)


def log_likelihood(logits: Tensor, target: list[int], lattice: Lattice) -> Tensor:
    """The log of the summed probability of all alignments of the target in logits (frames, labels + 1, outputs)."""
    tokens = logits[..., : lattice.blank + 1].log_softmax(-1) - lattice.sigma
    durations = logits[..., lattice.blank + 1 :].log_softmax(-1)
    frames, labels = logits.shape[0], len(target)
    impossible = logits.new_tensor(float("-inf"))
    reached = {(0, 0): logits.new_zeros(())}
    for frame in range(frames):
        for label in range(labels + 1):
            for arc in arcs_of(lattice) if (frame, label) in reached else ():
                goal = (frame + arc.frames, label + int(arc.emits))
                ends = goal[0] >= frames
                if goal[1] > labels or (ends and (arc.emits or goal != (frames, labels))):
                    continue
                step = tokens[frame, label, target[label] if arc.emits else lattice.blank]
                if arc.duration is not None:
                    step = step + durations[frame, label, arc.duration]
                if arc.emits:
                    step = _emphasize(step, lattice.fastemit)
                way = reached[frame, label] + step
                reached[goal] = torch.logaddexp(reached[goal], way) if goal in reached else way
    return reached.get((frames, labels), impossible)


def _emphasize(step: Tensor, emphasis: float) -> Tensor:
    """The same value with (1 + emphasis) of its gradient (FastEmit)."""
    return step.detach() + (1 + emphasis) * (step - step.detach())

"""Random joint networks and targets for the transducer loss, and its value by counting paths."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attune.kernels._reference import transducer_reference
from attune.kernels.transducer import Lattice, transducer_loss


@dataclass(frozen=True)
class Case:
    parts: tuple[Tensor, ...]  # encoded, predicted, weight, bias
    targets: Tensor
    lengths: Tensor
    target_lengths: Tensor
    lattice: Lattice

    def to(self, dtype: torch.dtype, device: str = "cpu") -> "Case":
        parts = tuple(part.detach().to(device, dtype).requires_grad_() for part in self.parts)
        return replace(self, parts=parts, targets=self.targets.to(device))

    def alone(self, row: int) -> "Case":
        """One of the utterances, without padding."""
        frames, labels = int(self.lengths[row]), int(self.target_lengths[row])
        encoded, predicted, weight, bias = (part.detach() for part in self.parts)
        cut = (encoded[row : row + 1, :frames], predicted[row : row + 1, : labels + 1], weight, bias)
        return Case(
            tuple(part.clone().requires_grad_() for part in cut),
            self.targets[row : row + 1, :labels],
            self.lengths[row : row + 1],
            self.target_lengths[row : row + 1],
            self.lattice,
        )

    def losses(self, cells: int | None = None) -> Tensor:
        return transducer_loss(*self.parts, self.targets, self.lengths, self.target_lengths, self.lattice, cells)

    def reference(self) -> Tensor:
        return transducer_reference(*self.parts, self.targets, self.lengths, self.target_lengths, self.lattice)


def make_case(
    sizes: list[tuple[int, int]], tokens: int, width: int, lattice: Lattice | None = None, seed: int = 0
) -> Case:
    """Utterances of these (frames, labels), padded together; float64."""
    random = torch.Generator().manual_seed(seed)
    lattice = lattice or Lattice(tokens)
    frames, labels = max(frames for frames, _ in sizes), max(labels for _, labels in sizes)
    outputs = tokens + 1 + len(lattice.durations)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    parts = (
        draw(len(sizes), frames, width),
        draw(len(sizes), labels + 1, width),
        draw(outputs, width) / width**0.5 * 2,
        draw(outputs),
    )
    return Case(
        tuple(part.requires_grad_() for part in parts),
        torch.randint(tokens, (len(sizes), labels), generator=random),
        torch.tensor([frames for frames, _ in sizes]),
        torch.tensor([labels for _, labels in sizes]),
        lattice,
    )


def gradients(losses: Tensor, case: Case) -> tuple[Tensor, ...]:
    """With another weight for every utterance."""
    scale = torch.linspace(0.5, 2, len(losses), dtype=losses.dtype, device=losses.device)
    return torch.autograd.grad((losses * scale).sum(), case.parts)


def distance(found: Tensor, expected: Tensor) -> float:
    """How far off, relative to the expected."""
    return float((found.double().cpu() - expected.double().cpu()).norm() / expected.double().cpu().norm())


def count_paths(case: Case, row: int) -> float:
    """The loss of one utterance: the sum over every path, one after the other."""
    frames, labels = int(case.lengths[row]), int(case.target_lengths[row])
    encoded, predicted, weight, bias = case.parts
    hidden = torch.relu(encoded[row, :frames, None] + predicted[row, None, : labels + 1])
    logits = (hidden @ weight.T + bias).detach()
    tokens = logits[..., : case.lattice.blank + 1].softmax(-1) * math.exp(-case.lattice.sigma)
    durations = logits[..., case.lattice.blank + 1 :].softmax(-1)
    target = case.targets[row, :labels].tolist()

    def probabilities(frame: int, label: int) -> Iterator[float]:
        """Of every path from here to the end."""
        if (frame, label) == (frames, labels):
            yield 1.0
        if frame >= frames:
            return
        blank = float(tokens[frame, label, case.lattice.blank])
        says = float(tokens[frame, label, target[label]]) if label < labels else 0.0
        if not case.lattice.durations:
            yield from (blank * rest for rest in probabilities(frame + 1, label))
            if says:
                yield from (says * rest for rest in probabilities(frame, label + 1))
        for index, step in enumerate(case.lattice.durations):
            share = float(durations[frame, label, index])
            if step:
                yield from (blank * share * rest for rest in probabilities(frame + step, label))
            if says and frame + step < frames:  # only a blank may step past the last frame
                yield from (says * share * rest for rest in probabilities(frame + step, label + 1))

    return -math.log(math.fsum(probabilities(0, 0)))

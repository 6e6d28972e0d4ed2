"""Gradients as one flat buffer: added up over micro-batches and ranks in a known order, divided once.

Two ways to add. The plain one accumulates in place and asks the world for the sum: the same ranks give the same
bits. The strict one adds micro-batches in one fixed binary tree, whatever rank computes which: any number of ranks
gives the same bits. Where ranks share the weights (FSDP2), the buffer holds this rank's slices, and backward has added
over the ranks already.

Statistics of a step (`contracts.StepStatistics`) ride along behind the gradients, and are added up with them.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from attune.contracts import StepStatistics
from attune.world import World

CHUNK = 1 << 22  # floats exchanged at once in strict mode, per rank
NORM_ROW = 1 << 14  # floats whose squares are added up at once


class Gradients:
    """All gradients of a model in one buffer that backward adds into."""

    def __init__(self, parameters: Iterable[nn.Parameter], tallied: Sequence[StepStatistics] = ()) -> None:
        parameters = list(parameters)
        leaves = [*parameters, *(module.begin_step() for module in tallied)]
        own = [leaf.to_local() if isinstance(leaf, DTensor) else leaf for leaf in leaves]
        sizes = [each.numel() for each in own]
        self.are_slices = any(isinstance(leaf, DTensor) for leaf in leaves)
        self.flat = torch.zeros(sum(sizes), device=parameters[0].device)
        parts = torch.split(self.flat, sizes)
        views = [part.view_as(slice_) for part, slice_ in zip(parts, own, strict=True)]
        for leaf, view in zip(leaves, views, strict=True):
            leaf.grad = _as_slice_of(leaf, view)
        self.gradient = self.flat[: sum(sizes[: len(parameters)])]  # what weights follow, without the statistics
        self.has_statistics = len(self.flat) > len(self.gradient)
        self._tallied: dict[type[StepStatistics], list[tuple[StepStatistics, Tensor]]] = {}
        for module, view in zip(tallied, views[len(parameters) :], strict=True):
            self._tallied.setdefault(type(module), []).append((module, view))

    def settle(self) -> None:
        """Hand the summed statistics to their modules."""
        for kind, pairs in self._tallied.items():
            modules, totals = zip(*pairs, strict=True)
            kind.settle(modules, totals)

    def clear(self) -> None:
        """Start again from zero."""
        self.flat.zero_()

    def take(self) -> Tensor:
        """What has been added since the last time, leaving zero."""
        taken = self.flat.clone()
        self.flat.zero_()
        return taken

    def norm(self, world: World) -> Tensor:
        """The norm of all gradients together, on the device."""
        own = _norm(self.gradient).to(world.device)
        return world.sum(own.double().square()).sqrt() if self.are_slices else own

    def put(self, total: Tensor | None) -> None:
        """Hold this sum; None is zero."""
        if total is not None:
            self.flat.copy_(total)


def _norm(flat: Tensor) -> Tensor:
    """The norm of row after row, then of all rows: a CPU adds squares one by one, and loses 4 % of 250 million."""
    whole = len(flat) // NORM_ROW * NORM_ROW
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, NORM_ROW), dim=1)
    rest = torch.linalg.vector_norm(flat[whole:])
    norm: Tensor = torch.linalg.vector_norm(torch.cat([rows, rest[None]]))
    return norm


def _as_slice_of(parameter: Tensor, part: Tensor) -> Tensor:
    """The memory `part` as a gradient of the parameter's own kind, which FSDP2 then adds into."""
    if not isinstance(parameter, DTensor):
        return part
    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(part, mesh, placements, shape=parameter.shape, stride=parameter.stride())


class Tree:
    """Adds tensors pairwise, as the leaves of a binary tree, keeping one partial sum per level."""

    def __init__(self) -> None:
        self._branches: list[tuple[int, Tensor | None]] = []

    def add(self, leaf: Tensor | None) -> None:
        """Add the next leaf; None is a leaf without a value."""
        level, total = 0, leaf
        while self._branches and self._branches[-1][0] == level:
            total = add_branches(self._branches.pop()[1], total)
            level += 1
        self._branches.append((level, total))

    def total(self) -> Tensor | None:
        """The sum of all leaves."""
        total = None
        for _, branch in reversed(self._branches):
            total = add_branches(branch, total)
        return total


def add_branches(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    """The sum of two branches, either of which may be without a value."""
    if left is None:
        return right
    return left if right is None else left + right


def sum_in_tree(world: World, branch: Tensor) -> None:
    """Replace each rank's branch by the sum of all ranks' branches, added in rank order as one tree.

    Works chunk by chunk, so that memory does not grow with the number of ranks times the model.
    """
    for chunk in torch.split(branch, CHUNK):
        tree = Tree()
        for part in world.stack(chunk):
            tree.add(part)
        total = tree.total()
        if total is not None:
            # Adding zero makes -0.0 and 0.0 one: an empty slot must not show in the bits.
            torch.add(total, 0.0, out=chunk)

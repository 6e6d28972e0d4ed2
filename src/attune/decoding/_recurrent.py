"""Networks that advance by labels, for rows of which some stand still: prediction networks and language models."""

# R rows
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attune.types import States

# Labels (R,) and states → the output for each row (R, …), and the new states
Network = Callable[[Tensor, States], tuple[Tensor, States]]


def advance_where(
    network: Network, labels: Tensor, is_label: Tensor, output: Tensor, states: States
) -> tuple[Tensor, States]:
    """Output and states once the rows that have a label (R,) took it; those of the others stay as they are."""
    new, new_states = network(labels, states)
    pairs = zip(new_states, states, strict=True)
    return _chosen(is_label, new, output), tuple(_chosen(is_label, after, before) for after, before in pairs)


def _chosen(is_label: Tensor, after: Tensor, before: Tensor) -> Tensor:
    """The new one of the rows that have a label; one that has grown, such as a cache, is padded in the others."""
    if grown := after.shape[1:] and after.shape[1] - before.shape[1]:
        before = F.pad(before, (*[0] * (2 * (after.dim() - 2)), 0, grown))
    return torch.where(is_label.view(-1, *[1] * (after.dim() - 1)), after, before)

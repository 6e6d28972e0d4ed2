"""One model from several checkpoints: the mean of their weights, which is often better than each of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from attune.errors import CheckpointError
from attune.training import checkpoint

Tensors = Mapping[str, Tensor]


def average(folders: Sequence[Path], plain: Callable[[Tensors], Tensors] = dict) -> dict[str, Tensor]:
    """The mean of checkpoints' weights, added up in float64; what is not a float is the last one's.

    `plain` may change each state dict first: the factors of LoRA must be multiplied before they are averaged. Only one
    checkpoint is in memory at a time, beside the sum.
    """
    return mean((folder, plain(_read(folder))) for folder in folders)


def mean(models: Iterable[tuple[Path, Tensors]]) -> dict[str, Tensor]:
    """The mean of models' weights, added up in float64, each named by where it was read."""
    total: dict[str, Tensor] = {}
    last: Tensors = {}
    count = 0
    for path, last in models:
        _require_alike(total or last, last, path)
        for name, tensor in last.items():
            total[name] = total[name].add_(tensor) if name in total else tensor.double()
        count += 1
    return {
        name: (total[name] / count).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in last.items()
    }


def _read(folder: Path) -> Tensors:
    reason = checkpoint.damage(folder)
    if reason:
        raise CheckpointError(f"{folder} is damaged: {reason}. Remove it from the average.")
    return checkpoint.tensors(folder)


def _require_alike(first: Tensors, other: Tensors, folder: Path) -> None:
    one, two = ({(name, tuple(tensor.shape)) for name, tensor in each.items()} for each in (first, other))
    if one != two:
        differing = sorted({name for name, _ in one ^ two})
        raise CheckpointError(
            f"{folder} is a checkpoint of another model: {', '.join(differing[:5])} differ. Average checkpoints "
            "of one run."
        )

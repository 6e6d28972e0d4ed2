"""Optimizers, and their state under the parameters' names so that it is data like the weights."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attune.errors import CheckpointError
from attune.training.adafactor import Adafactor
from attune.training.adam8 import Adam8
from attune.training.bitsandbytes8 import BitsandbytesAdam8

ADADELTA_RHO, ADADELTA_EPS = 0.95, 1e-8  # of SpeechBrain's LibriSpeech recipe


class OptimizerLike(Protocol):
    """What the loop needs of an optimizer, whether it holds all parameters or a rank's own."""

    param_groups: list[dict[str, Any]]

    def step(self) -> object:
        """Follow the gradients once."""


def make_optimizer(
    name: str,
    model: nn.Module,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float],
    factors: Mapping[str, float] | None = None,
    only: Collection[str] | None = None,
) -> Optimizer:
    """AdamW, with 8 bits or more, Adafactor or Adadelta over the trainable parameters. Biases and norms never decay.

    `factors` gives parameters, by name, their part of the learning rate; `only` leaves out all others than these.
    """
    groups = _groups(model, weight_decay, factors or {}, only)
    if name == "adadelta":
        return torch.optim.Adadelta(groups, lr=lr, rho=ADADELTA_RHO, eps=ADADELTA_EPS)
    if name == "adafactor":
        return Adafactor(groups, lr=lr)
    if name == "adamw8bit":
        return Adam8(groups, lr=lr, betas=betas)
    if name == "bitsandbytes":
        return BitsandbytesAdam8(groups, lr=lr, betas=betas)
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def set_lr(optimizer: OptimizerLike, lr: float) -> None:
    """Use this learning rate for the next step, each group its part of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("factor", 1.0)


def _groups(
    model: nn.Module, weight_decay: float, factors: Mapping[str, float], only: Collection[str] | None
) -> list[dict[str, Any]]:
    """Parameters that are treated alike, together: matrices before the rest, and in the order of the model."""
    alike: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for is_matrix in (True, False):
        for name, parameter in model.named_parameters():
            if only is not None and name not in only:
                continue
            if parameter.requires_grad and (parameter.ndim >= 2) == is_matrix:
                alike.setdefault((is_matrix, factors.get(name, 1.0)), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": weight_decay if is_matrix else 0.0, "factor": factor}
        for (is_matrix, factor), parameters in alike.items()
    ]


def state_by_name(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as flat tensors, `PARAMETER/KEY`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": value
        for parameter, values in optimizer.state.items()
        for key, value in values.items()
    }


def load_state_by_name(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `state_by_name` gave, exactly as it was."""
    parameters = dict(model.named_parameters())
    counts_on_device = any(group.get("fused") for group in optimizer.param_groups)
    optimizer.state.clear()
    for name, value in tensors.items():
        parameter_name, key = name.rsplit("/", 1)
        if parameter_name not in parameters:
            raise CheckpointError(f"The optimizer state has {parameter_name!r}, which this model does not have.")
        parameter = parameters[parameter_name]
        # Only a fused optimizer counts its steps on the device; everything else lives beside its parameter.
        moves = key != "step" or counts_on_device
        optimizer.state[parameter][key] = value.to(parameter.device) if moves else value

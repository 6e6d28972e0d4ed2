"""Optimizers, and their state under the parameters' names so that it is data like the weights."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from attune.errors import CheckpointError


def make_optimizer(
    name: str, model: nn.Module, lr: float, weight_decay: float, betas: tuple[float, float]
) -> Optimizer:
    """AdamW or Adafactor over the trainable parameters; matrices decay, biases and norms do not."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if name == "adafactor":
        return torch.optim.Adafactor(groups, lr=lr)
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """Use this learning rate for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr


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
    optimizer.state.clear()
    for name, value in tensors.items():
        parameter_name, key = name.rsplit("/", 1)
        if parameter_name not in parameters:
            raise CheckpointError(f"The optimizer's state has {parameter_name!r}, which this model does not have.")
        parameter = parameters[parameter_name]
        # The step counters stay where the optimizer keeps them; everything else lives beside its parameter.
        optimizer.state[parameter][key] = value if value.ndim == 0 and not value.is_cuda else value.to(parameter.device)

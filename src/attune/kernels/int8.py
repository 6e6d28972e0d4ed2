"""Linear layers in int8 on the CPU: weights by output channel, activations by row.

A row is quantized by its own largest value and products of integers are exact, so what a layer makes of a row does not
depend on the rows beside it.
"""

# R rows, I inputs, O outputs
import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)

LARGEST = 127.0
SMALLEST_SCALE = 1e-12  # of a row of zeros


class Int8Linear(nn.Module):
    """A linear layer for inference, made from the weights (O, I) of another."""

    integers: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        integers, scales = quantize_rows(weight.detach().float())
        self.register_buffer("integers", integers.T)  # (I, O), laid out by output
        self.register_buffer("scales", scales[:, 0])  # (O,)
        self.register_buffer("bias", torch.zeros(len(weight)) if bias is None else bias.detach().float())

    @property
    def weight(self) -> Tensor:
        """What its integers stand for (O, I), for models that ask a layer for its type or device."""
        return self.integers.T * self.scales[:, None]

    def forward(self, inputs: Tensor) -> Tensor:
        """Of inputs (…, I), outputs (…, O) of their type."""
        rows, scales = quantize_rows(inputs.detach().reshape(-1, self.in_features).float())
        sums = torch._int_mm(rows, self.integers).float().mul_(scales)
        outputs = torch.addcmul(self.bias.float(), sums, self.scales.float(), out=sums)
        return outputs.view(*inputs.shape[:-1], self.out_features).to(inputs.dtype)


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The rows (R, I) as integers from -127 to 127, and the scale of each (R, 1)."""
    scales = (rows.abs().amax(1, keepdim=True) / LARGEST).clamp_(min=SMALLEST_SCALE)
    return (rows / scales).round_().to(torch.int8), scales


def int8_copy(model: Module, part: nn.Module | None = None) -> Module:
    """A copy of a model with the linear layers of a part, or all of them, in int8; it cannot be trained."""
    layers = [each for each in (part or model).modules() if type(each) is nn.Linear]
    # What stands in for a layer in the copy is made first: its weights are not copied, only to be dropped.
    replaced = {id(each): Int8Linear(each.weight, each.bias) for each in layers}
    return copy.deepcopy(model, dict(replaced)).eval()

"""Linear layers in int8 on the CPU: weights by output channel, activations by row.

A row is quantized by its own largest value and products of integers are exact, so what a layer makes of a row does not
depend on the rows beside it.
"""

# R rows, I inputs, O outputs
import copy

import torch
from torch import Tensor, nn

LARGEST = 127.0
SMALLEST_SCALE = 1e-12  # of a row of zeros


class Int8Linear(nn.Module):
    """A linear layer for inference, made from the weights (O, I) of another."""

    weight: Tensor
    scales: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        weights, scales = quantize_rows(weight.detach().float())
        self.register_buffer("weight", weights.T)  # (I, O), laid out by output
        self.register_buffer("scales", scales[:, 0])  # (O,)
        self.register_buffer("bias", torch.zeros(len(weight)) if bias is None else bias.detach().float())

    def forward(self, inputs: Tensor) -> Tensor:
        """Of inputs (…, I), outputs (…, O)."""
        rows, scales = quantize_rows(inputs.flatten(0, -2).float())
        sums = torch._int_mm(rows, self.weight).float().mul_(scales)
        outputs = torch.addcmul(self.bias, sums, self.scales, out=sums)
        return outputs.view(*inputs.shape[:-1], -1)


def quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The rows (R, I) as integers from -127 to 127, and the scale of each (R, 1)."""
    scales = (rows.abs().amax(1, keepdim=True) / LARGEST).clamp_(min=SMALLEST_SCALE)
    return (rows / scales).round_().to(torch.int8), scales


def int8_copy(model: nn.Module) -> nn.Module:
    """A copy of a model with all of its linear layers in int8; it cannot be trained."""
    # What stands in for a layer in the copy is made first: its weights are not copied, only to be dropped.
    replaced = {id(each): Int8Linear(each.weight, each.bias) for each in model.modules() if type(each) is nn.Linear}
    return copy.deepcopy(model, dict(replaced)).eval()

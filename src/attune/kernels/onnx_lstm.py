"""An LSTM layer as the one operator that ONNX has for it; torch's exporter unrolls the example's frames."""

# F frames, B batch, I inputs, H width, D directions
import torch
from torch import Tensor, nn

GATES = (0, 3, 1, 2)  # torch's input, forget, cell and output gate in ONNX's order


def onnx_lstm(layer: nn.LSTM, frames: Tensor) -> Tensor:
    """The outputs (F, B, D × H) of frames (F, B, I) in a graph that is being exported; computes nothing elsewhere."""
    suffixes = ("_l0", "_l0_reverse") if layer.bidirectional else ("_l0",)
    inputs, recurrent, *biases = (
        torch.stack([_reordered(layer.get_parameter(name + suffix)) for suffix in suffixes])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    found = torch.onnx.ops.symbolic(
        "LSTM",
        (frames, inputs, recurrent, torch.cat(biases, 1)),
        {"hidden_size": layer.hidden_size, "direction": "bidirectional" if layer.bidirectional else "forward"},
        dtype=frames.dtype,
        shape=(frames.shape[0], len(suffixes), frames.shape[1], layer.hidden_size),
    )
    return found.transpose(1, 2).flatten(2)


def _reordered(weights: Tensor) -> Tensor:
    return weights.view(4, -1, *weights.shape[1:])[list(GATES)].flatten(0, 1)

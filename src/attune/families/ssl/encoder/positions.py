"""Positional convolutions: one with weight norm, or data2vec's several; each sees an utterance's own frames only."""

# B batch, F frames, D width
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families.ssl.encoder.front_end import activation_of
from attune.families.ssl.encoder.layers import FixedBatchNorm
from attune.families.ssl.encoder.shape import EncoderShape


def _convolved(frames: Tensor, weight: Tensor, bias: Tensor, groups: int) -> Tensor:
    """Channels (B, D, F) in at least float32: cuDNN takes eleven times as long for groups in half precision."""
    wide = torch.promote_types(frames.dtype, torch.float32)
    with torch.autocast(frames.device.type, enabled=False):
        padding = weight.shape[2] // 2
        convolved = F.conv1d(frames.to(wide), weight.to(wide), bias.to(wide), padding=padding, groups=groups)
    return convolved.to(frames.dtype)


class GroupedConv(nn.Module):
    """A convolution in groups, under the names of torch's."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.groups = shape.conv_position_groups
        plain = nn.Conv1d(shape.width, shape.width, shape.conv_positions, groups=self.groups)
        self.weight, self.bias = plain.weight, nn.Parameter(torch.zeros(shape.width))

    def forward(self, hidden: Tensor) -> Tensor:
        """The convolved channels (B, D, F), one more where the kernel is even."""
        return _convolved(hidden, self.weight, self.bias, self.groups)


class WeightNormConv(nn.Module):
    """A convolution whose taps each have a length of their own, under the names of torch's older weight norm."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        width, kernel, self.groups = shape.width, shape.conv_positions, shape.conv_position_groups
        spread = 2 * math.sqrt(1 / (kernel * width))
        self.weight_v = nn.Parameter(torch.randn(width, width // self.groups, kernel) * spread)
        self.weight_g = nn.Parameter(self.weight_v.detach().norm(dim=(0, 1), keepdim=True))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, hidden: Tensor) -> Tensor:
        """The convolved channels (B, D, F), one more where the kernel is even."""
        lengths = self.weight_v.float().norm(dim=(0, 1), keepdim=True)
        weight = self.weight_v * (self.weight_g / lengths).to(self.weight_v.dtype)
        return _convolved(hidden, weight, self.bias, self.groups)


class ConvPositions(nn.Module):
    """The convolution of wav2vec 2.0, HuBERT and WavLM."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.batch_norm = FixedBatchNorm(shape.width) if shape.conv_position_norm else None
        self.conv = GroupedConv(shape) if shape.conv_position_norm else WeightNormConv(shape)
        self.activation = activation_of(shape.conv_activation)

    def forward(self, hidden: Tensor, beyond: Tensor) -> Tensor:
        """What is added to the frames (B, F, D), of which those beyond (B, F, 1) are zero."""
        frames = hidden.transpose(1, 2)
        if self.batch_norm is not None:
            frames = self.batch_norm(frames).masked_fill(beyond.mT, 0)
        added: Tensor = self.activation(self.conv(frames)[..., : hidden.shape[1]])
        return added.transpose(1, 2)


class ConvPositionLayer(nn.Module):
    """One of data2vec's convolutions."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.conv = GroupedConv(shape)
        self.activation = activation_of(shape.conv_activation)

    def forward(self, frames: Tensor) -> Tensor:
        """The convolved frames (B, F, D)."""
        convolved = self.conv(frames.transpose(1, 2))[..., : frames.shape[1]].transpose(1, 2)
        normed: Tensor = self.activation(F.layer_norm(convolved, convolved.shape[-1:]))
        return normed


class StackedConvPositions(nn.Module):
    """Several smaller convolutions, one after the other."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ConvPositionLayer(shape) for _ in range(shape.conv_position_layers))

    def forward(self, hidden: Tensor, beyond: Tensor) -> Tensor:
        """What is added to the frames (B, F, D), of which those beyond (B, F, 1) are zero."""
        for layer in self.layers:
            hidden = layer(hidden.masked_fill(beyond, 0))
        return hidden

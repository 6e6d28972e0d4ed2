"""ContextNet (arXiv 2005.03191) as NeMo builds it: blocks of convolutions with squeeze-and-excitation.

The names of its weights are NeMo's. Every convolution and every mean looks at an utterance's own frames only.
"""

# B batch, C channels, F frames
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from attune.families._norm import BatchNorm
from attune.families._own import Own, own_of
from attune.families.transducer.shape import ContextNetBlockShape, ContextNetShape
from attune.kernels.recompute import run_layer

LEAST_VARIANCE = 1e-3
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"relu": nn.ReLU, "swish": nn.SiLU}


class Pointwise(nn.Conv1d):
    """A convolution that looks at one frame, as a product: cuDNN would plan it anew for every length."""

    def forward(self, frames: Tensor) -> Tensor:
        """The convolved frames (B, C, F / stride)."""
        weights = self.weight.squeeze(2).expand(len(frames), -1, -1)
        return torch.bmm(weights, frames[:, :, :: self.stride[0]])


class MaskedConvolution(nn.Module):
    """A convolution to which everything beyond the own frames is zero, where it would look at it."""

    def __init__(self, channels: int, filters: int, kernel: int, stride: int, dilation: int, groups: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.looks_around = kernel > 1
        padding = dilation * (kernel - 1) // 2
        kind = nn.Conv1d if self.looks_around or groups > 1 else Pointwise
        self.conv = kind(channels, filters, kernel, stride, padding, dilation, groups, bias=False)

    def forward(self, frames: Tensor, own: Own) -> tuple[Tensor, Own]:
        """The convolved frames (B, C, F / stride), and which are each row's own."""
        convolved: Tensor = self.conv(own.only(frames) if self.looks_around else frames)
        return convolved, own.strided(self.stride) if self.stride > 1 else own


class SqueezeExcitation(nn.Module):
    """Weighs the channels by the mean over the own frames."""

    def __init__(self, channels: int, factor: int, activation: str) -> None:
        super().__init__()
        narrow = channels // factor
        self.fc = nn.Sequential(
            nn.Linear(channels, narrow, bias=False), ACTIVATIONS[activation](), nn.Linear(narrow, channels, bias=False)
        )

    def forward(self, frames: Tensor, own: Own) -> Tensor:
        """The weighed frames (B, C, F)."""
        with torch.autocast(frames.device.type, enabled=False):  # a mean of many frames is too much for half precision
            wide = own.only(frames)
            wide = wide.float() if wide.dtype in (torch.bfloat16, torch.float16) else wide
            weights: Tensor = self.fc(wide.sum(2) / own.lengths[:, None]).sigmoid()
            return (wide * weights[..., None]).to(frames.dtype)


class ContextNetBlock(nn.Module):
    """Convolutions with squeeze-and-excitation, and a way around them."""

    def __init__(self, channels: int, shape: ContextNetBlockShape, activation: str, is_frozen: bool) -> None:
        super().__init__()
        self.mconv = nn.ModuleList(_layers(channels, shape, activation, is_frozen))
        self.res: nn.ModuleList | None = None
        if shape.residual:
            stride = shape.stride if shape.residual_strides else 1
            around = MaskedConvolution(channels, shape.filters, 1, stride, 1)
            norm = BatchNorm(shape.filters, LEAST_VARIANCE, is_frozen)
            self.res = nn.ModuleList([nn.ModuleList([around, norm])])
        self.mout = nn.Sequential(ACTIVATIONS[activation](), nn.Dropout(shape.dropout))

    def forward(self, frames: Tensor, own: Own) -> tuple[Tensor, Own]:
        """The next frames (B, C, F / stride), and which are each row's own."""
        hidden, left = _through(self.mconv, frames, own)
        if self.res is not None:
            hidden = hidden + _through(self.res[0], frames, own)[0]  # type: ignore[arg-type]
        return self.mout(hidden), left


class ContextNet(nn.Module):
    """Log-mel energies to frames."""

    def __init__(self, shape: ContextNetShape, is_frozen: bool = False, saves_memory: bool = False) -> None:
        super().__init__()
        widths = [shape.bins, *(block.filters for block in shape.blocks)]
        self.encoder = nn.ModuleList(
            ContextNetBlock(width, block, shape.activation, is_frozen)
            for width, block in zip(widths, shape.blocks, strict=False)
        )
        self.strides = [
            stride for block in shape.blocks for stride in [block.stride] * (1 if block.strides_last else block.repeat)
        ]
        self.stride = math.prod(self.strides)
        self.saves_memory = saves_memory
        self.apply(_give_fresh_weights)

    def forward(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, F / stride, C) of log-mel energies (B, M, F), and how many are each row's own."""
        own = own_of(lengths, mels.shape[2])
        for block in self.encoder:
            mels, own = run_layer(block, mels, own, saves_memory=self.saves_memory and self.training)
        return mels.transpose(1, 2), own.lengths

    def frames(self, count: int) -> int:
        """How many frames come of so many."""
        for stride in self.strides:
            count = (count + stride - 1) // stride
        return count


def _layers(channels: int, shape: ContextNetBlockShape, activation: str, is_frozen: bool) -> Iterator[nn.Module]:
    """The layers in NeMo's order, which is what numbers their weights."""
    for index in range(shape.repeat):
        is_last = index == shape.repeat - 1
        stride = shape.stride if is_last or not shape.strides_last else 1
        if shape.separable:
            yield MaskedConvolution(channels, channels, shape.kernel, stride, shape.dilation, groups=channels)
            yield MaskedConvolution(channels, shape.filters, 1, 1, 1)
        else:
            yield MaskedConvolution(channels, shape.filters, shape.kernel, stride, shape.dilation)
        yield BatchNorm(shape.filters, LEAST_VARIANCE, is_frozen)
        if not is_last:
            yield ACTIVATIONS[activation]()
            yield nn.Dropout(shape.dropout)
        channels = shape.filters
    if shape.squeeze:
        yield SqueezeExcitation(shape.filters, shape.squeeze, activation)


def _through(layers: nn.ModuleList, frames: Tensor, own: Own) -> tuple[Tensor, Own]:
    for layer in layers:
        if isinstance(layer, MaskedConvolution):
            frames, own = layer(frames, own)
        elif isinstance(layer, BatchNorm | SqueezeExcitation):
            frames = layer(frames, own)
        else:
            frames = layer(frames)
    return frames, own


def _give_fresh_weights(module: nn.Module) -> None:
    """Uniform, as for time-depth separable convolutions (arXiv 1904.02619)."""
    if isinstance(module, nn.Conv1d | nn.Linear):
        bound = 2 / module.weight[0].numel() ** 0.5
        nn.init.uniform_(module.weight, -bound, bound)

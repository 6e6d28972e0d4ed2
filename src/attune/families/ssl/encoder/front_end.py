"""Samples to frames by strided convolutions, as matrix products; a row is a function of its own samples.

Frames lie one after the other in memory, so a window of a convolution is a piece of it, and a convolution a matrix
product. Convolutions are not padded: an utterance's own frames see its own samples only. What would see more is the
group norm over time after the first one. Its mean and variance follow from those of the samples in a window, which are
few; so it is exact for every row, and is multiplied into the weights.
"""

# B batch, T samples or frames, C channels, K taps of a kernel
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import precise_dtype, within
from attune.families.ssl.encoder.shape import ConvShape, EncoderShape

ALIGNED = 8  # numbers: what fast matrix products ask rows to be multiples of


class ConvLayer(nn.Module):
    """A convolution with its norm, under transformers' names for their weights."""

    def __init__(self, channels: int, conv: ConvShape, shape: EncoderShape, is_first: bool) -> None:
        super().__init__()
        self.is_grouped = shape.group_norm and is_first
        # A norm over time takes a bias away again.
        has_bias = shape.conv_bias and not self.is_grouped
        self.conv = nn.Conv1d(channels, conv.width, conv.kernel, conv.stride, bias=has_bias)
        nn.init.kaiming_normal_(self.conv.weight)
        self.layer_norm: nn.Module | None = None
        if self.is_grouped:
            self.layer_norm = nn.GroupNorm(conv.width, conv.width)
        elif not shape.group_norm:
            self.layer_norm = nn.LayerNorm(conv.width)
        self.activation = activation_of(shape.conv_activation)

    def forward(self, hidden: Tensor, counts: Tensor) -> Tensor:
        """The next frames (B, T, C) of frames of which so many (B,) will be each row's own."""
        if self.is_grouped:
            hidden = self._normed_over_time(hidden[..., 0], counts)
        else:
            hidden = strided_conv(hidden, self.conv)
            if self.layer_norm is not None:
                hidden = self.layer_norm(hidden)
        activated: Tensor = self.activation(hidden)
        return activated

    def _normed_over_time(self, audio: Tensor, counts: Tensor) -> Tensor:
        """The first convolution and its group norm (B, T, C) of samples (B, T)."""
        (kernel,), (stride,) = self.conv.kernel_size, self.conv.stride
        windows = audio.unfold(1, kernel, stride)  # (B, T, K)
        precise = precise_dtype(audio.device)
        own = within(counts, windows.shape[1])[..., None]
        means = windows.to(precise).masked_fill(~own, 0).sum(1) / counts[:, None]
        centered = (windows.to(precise) - means[:, None]).masked_fill(~own, 0)
        spread = centered.mT @ centered / counts[:, None, None]  # (B, K, K)
        norm = self.layer_norm
        if not isinstance(norm, nn.GroupNorm):
            raise TypeError("A group norm belongs to the first convolution.")
        weight = self.conv.weight[:, 0].to(precise)  # (C, K)
        variance = ((weight @ spread) * weight).sum(-1)  # (B, C)
        scale = norm.weight.to(precise) * (variance + norm.eps).rsqrt()
        offset = norm.bias.to(precise) - scale * (means @ weight.mT)
        # The offset is one more tap, which always sees 1.
        taps = torch.cat([scale[..., None] * weight, offset[..., None]], dim=2)  # (B, C, K + 1)
        dtype = self.conv.weight.dtype
        return _product(F.pad(windows.to(dtype), (0, 1), value=1.0), taps.to(dtype))


class ConvFrontEnd(nn.Module):
    """All convolutions, one after the other."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.convs = shape.convs
        self.least_samples = shape.least_samples
        channels = [1, *(conv.width for conv in shape.convs)]
        self.conv_layers = nn.ModuleList(
            ConvLayer(channels[index], conv, shape, is_first=index == 0) for index, conv in enumerate(shape.convs)
        )

    def forward(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, F, C) of samples (B, T), and how many are each row's own; silence completes the shortest."""
        audio = F.pad(audio, (0, max(0, self.least_samples - audio.shape[1])))
        hidden, counts = audio[..., None], lengths.clamp(min=self.least_samples)
        for conv, layer in zip(self.convs, self.conv_layers, strict=True):
            counts = (counts - conv.kernel) // conv.stride + 1
            hidden = layer(hidden, counts)
        return hidden, counts

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        count = max(samples, self.least_samples)
        for conv in self.convs:
            count = (count - conv.kernel) // conv.stride + 1
        return count


def strided_conv(hidden: Tensor, conv: nn.Conv1d) -> Tensor:
    """A convolution without padding (B, T, C) of frames (B, T, C): a matrix product for every whole stride of taps."""
    (kernel,), (stride,) = conv.kernel_size, conv.stride
    rows, size, channels = hidden.shape
    count = (size - kernel) // stride + 1
    hidden = hidden.contiguous().to(conv.weight.dtype)
    total = _product(hidden[..., 0].unfold(1, kernel, stride), conv.weight[:, 0]) if channels == 1 else None
    for begin in range(0, kernel if channels > 1 else 0, stride):
        taps = min(stride, kernel - begin)
        sizes, steps = (rows, count, taps * channels), (size * channels, stride * channels, 1)
        windows = hidden.as_strided(sizes, steps, hidden.storage_offset() + begin * channels)
        weight = conv.weight[:, :, begin : begin + taps].permute(2, 1, 0).reshape(1, taps * channels, -1)
        weight = weight.expand(rows, -1, -1)
        if total is None:
            total = torch.bmm(windows, weight)
        else:
            # In place: frames of the first layers are the largest there are.
            total = total.baddbmm_(windows.to(total.dtype), weight.to(total.dtype))
    if total is None:
        raise ValueError("A convolution has at least one tap.")
    return total if conv.bias is None else total + conv.bias


def _product(windows: Tensor, taps: Tensor) -> Tensor:
    """Windows (B, T, K) of a single channel times the taps of each new one, (C, K) or (B, C, K)."""
    spare = -windows.shape[-1] % ALIGNED
    return F.pad(windows, (0, spare)) @ F.pad(taps, (0, spare)).mT


def activation_of(name: str) -> nn.Module:
    """An activation by its name in transformers."""
    known: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "swish": nn.SiLU}
    return known[name]()

"""The CRDNN encoder: convolutions, pooling, a bidirectional LSTM and linear layers, each at the utterance's own edge.

SpeechBrain's convolutions reflect what is at the end of the tensor, and its LSTM starts in the padding: there, a result
depends on the batch. Here an utterance is reflected at its own end, and the LSTM is packed, as if it were alone.
"""

# B batch, C channels, F frames, M mel bins, D width
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attune.families._norm import BatchNorm
from attune.families._own import own_of
from attune.families.aed.shape import CrdnnShape


class EdgeConv(nn.Module):
    """A 2-D convolution of as many frames and bins as before, reflected at the own end of each utterance."""

    def __init__(self, channels_in: int, channels: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels, kernel)
        self.reach = kernel // 2

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Frames (B, C, M, F) of these lengths (B,)."""
        size, reach = frames.shape[3], self.reach
        places = torch.arange(-reach, size + reach, device=frames.device)[None].abs()
        last = (lengths - 1)[:, None]
        mirrored = (2 * last - places).clamp(min=0)  # beyond the reflection it is nobody's frame
        places = torch.where(places > last, mirrored, places)  # (B, F + 2 reach)
        index = places[:, None, None].expand(-1, frames.shape[1], frames.shape[2], -1)
        # Not torch's own reflection, whose gradient CUDA adds up in any order.
        reflected = frames.gather(3, index).index_select(2, _mirrored(frames.shape[2], reach, frames.device))
        convolved: Tensor = self.conv(reflected)
        return convolved


def _mirrored(size: int, reach: int, device: torch.device) -> Tensor:
    """The places of so many bins with those beyond either edge reflected (M + 2 reach,)."""
    places = torch.arange(-reach, size + reach, device=device).abs()
    return (size - 1) - ((size - 1) - places).abs()


class ConvBlock(nn.Module):
    """Two convolutions with layer norms, and pooling over frequency."""

    def __init__(self, channels_in: int, channels: int, bins: int, pooling: int, shape: CrdnnShape) -> None:
        super().__init__()
        self.conv_1 = EdgeConv(channels_in, channels, shape.kernel)
        self.norm_1 = nn.LayerNorm((bins, channels))
        self.conv_2 = EdgeConv(channels, channels, shape.kernel)
        self.norm_2 = nn.LayerNorm((bins, channels))
        self.pooling = pooling
        self.dropout = nn.Dropout2d(shape.dropout)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Frames (B, C, M, F) to (B, C', M / pooling, F)."""
        for conv, norm in ((self.conv_1, self.norm_1), (self.conv_2, self.norm_2)):
            normed = norm(conv(frames, lengths).permute(0, 3, 2, 1))  # (B, F, M, C)
            frames = F.leaky_relu(normed).permute(0, 3, 2, 1)
        pooled: Tensor = self.dropout(F.max_pool2d(frames, (self.pooling, 1)))
        return pooled


class DnnBlock(nn.Module):
    """A linear layer with batch normalization over own frames."""

    def __init__(self, width_in: int, width: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width)
        self.norm = BatchNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Frames (B, F, D)."""
        normed = self.norm(self.linear(frames).transpose(1, 2), own_of(lengths, frames.shape[1])).transpose(1, 2)
        activated: Tensor = self.dropout(F.leaky_relu(normed))
        return activated


class Crdnn(nn.Module):
    """Normalized energies to the frames that the decoder attends to, one in `time_pooling`."""

    def __init__(self, shape: CrdnnShape, mels: int) -> None:
        super().__init__()
        self.time_pooling = shape.time_pooling
        bins, channels = mels, 1
        self.blocks = nn.ModuleList()
        for width, pooling in zip(shape.channels, shape.frequency_pooling, strict=True):
            self.blocks.append(ConvBlock(channels, width, bins, pooling, shape))
            bins, channels = bins // pooling, width
        # Layers of their own, because the dropout inside a stack of layers keeps a random state on CUDA that
        # seeding does not reach.
        recurred = shape.width if shape.is_rnn_projected else 2 * shape.rnn_width
        widths = [bins * channels, *[recurred] * (shape.rnn_layers - 1)]
        self.rnn = nn.ModuleList(nn.LSTM(width, shape.rnn_width, bidirectional=True) for width in widths)
        projected = shape.rnn_layers if shape.is_rnn_projected else 0
        self.projections = nn.ModuleList(nn.Linear(2 * shape.rnn_width, shape.width) for _ in range(projected))
        self.dropout = nn.Dropout(shape.dropout)
        widths = [recurred, *[shape.width] * (shape.dnn_layers - 1)]
        self.dnn = nn.ModuleList(DnnBlock(width, shape.width, shape.dropout) for width in widths)

    def forward(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Energies (B, F, M) to frames (B, F / pooling, D), and how many are each row's own."""
        # Pooling needs as many frames as it joins; those beyond the own ones are the same in any batch.
        mels = F.pad(mels, (0, 0, 0, max(0, self.time_pooling - mels.shape[1])))
        frames = mels.transpose(1, 2)[:, None]  # (B, 1, M, F)
        for block in self.blocks:
            frames = block(frames, lengths)
        frames = F.max_pool2d(frames, (1, self.time_pooling))
        counts = (lengths // self.time_pooling).clamp(min=1)
        frames = self._recur(frames.permute(0, 3, 2, 1).flatten(2), counts)
        for block in self.dnn:
            frames = block(frames, counts)
        return frames, counts

    def frames(self, mel_frames: int) -> int:
        """How many frames come from so many of the front end."""
        return max(1, mel_frames // self.time_pooling)

    def _recur(self, frames: Tensor, counts: Tensor) -> Tensor:
        packed = pack_padded_sequence(frames, counts.cpu(), batch_first=True, enforce_sorted=False)
        for number, layer in enumerate(self.rnn):
            data = self.dropout(packed.data) if number else packed.data
            packed, _ = layer(packed._replace(data=data))
            if self.projections:
                packed = packed._replace(data=self.projections[number](packed.data))
        recurred: Tensor = pad_packed_sequence(packed, batch_first=True, total_length=frames.shape[1])[0]
        return recurred

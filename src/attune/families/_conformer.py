"""Conformer (arXiv 2005.08100) and FastConformer (arXiv 2305.05084) encoders, with NeMo's names for their weights.

Convolutions, attention and norms look at an utterance's own frames only.
"""

# B batch, M mel bins, F frames, D width, H heads, P relative positions (2 F - 1)
import functools
import math
from collections import deque
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families._conformer_shape import ConformerShape
from attune.families._norm import BatchNorm
from attune.families._own import Own, own_of
from attune.kernels.recompute import run_layer


class Subsampling(nn.Module):
    """Log-mel energies to fewer frames, by convolutions that each make one of two."""

    def __init__(self, shape: ConformerShape) -> None:
        super().__init__()
        self.halvings = int(math.log2(shape.factor))
        self.conv = nn.Sequential(*self._layers(shape))
        bins = functools.reduce(lambda count, _: -(-count // 2), range(self.halvings), shape.bins)
        self.out = nn.Linear(shape.channels * bins, shape.width)

    def _layers(self, shape: ConformerShape) -> list[nn.Module]:
        channels = shape.channels
        layers: list[nn.Module] = [nn.Conv2d(1, channels, 3, 2, 1), nn.ReLU()]
        for _ in range(self.halvings - 1):
            if shape.subsampling == "dw_striding":
                layers += [nn.Conv2d(channels, channels, 3, 2, 1, groups=channels), nn.Conv2d(channels, channels, 1)]
            else:
                layers += [nn.Conv2d(channels, channels, 3, 2, 1)]
            layers += [nn.ReLU()]
        return layers

    def forward(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Own]:
        """Frames (B, F / factor, D) of log-mel energies (B, M, F), and which are each row's own."""
        hidden, own = mels.transpose(1, 2)[:, None], own_of(lengths, mels.shape[2])  # (B, 1, F, M)
        for layer in self.conv:
            if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2):
                hidden, own = layer(hidden.masked_fill(own.beyond[..., None], 0)), own.strided(2)
            else:
                hidden = layer(hidden)  # frame by frame
        hidden = hidden.masked_fill(own.beyond[..., None], 0)
        return self.out(hidden.transpose(1, 2).flatten(2)), own


class RelativeAttention(nn.Module):
    """Several heads that know how far away everything is (arXiv 1901.02860)."""

    def __init__(self, shape: ConformerShape) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.dropout = shape.dropout_attention
        self.linear_q = nn.Linear(width, width, bias=shape.has_bias)
        self.linear_k = nn.Linear(width, width, bias=shape.has_bias)
        self.linear_v = nn.Linear(width, width, bias=shape.has_bias)
        self.linear_out = nn.Linear(width, width, bias=shape.has_bias)
        self.linear_pos = nn.Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(shape.heads, width // shape.heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(shape.heads, width // shape.heads))

    def forward(self, hidden: Tensor, positions: Tensor, beyond: Tensor) -> Tensor:
        """Look at everything but what is beyond (B, 1, 1, F): (B, F, D)."""
        queries = self.linear_q(hidden).view(*hidden.shape[:2], self.heads, -1)  # (B, F, H, D / H)
        keys, values = self._by_head(self.linear_k(hidden)), self._by_head(self.linear_v(hidden))
        places = self._by_head(self.linear_pos(positions))  # (1, H, P, D / H)
        scale = queries.shape[-1] ** -0.5
        about_places = (queries + self.pos_bias_v).transpose(1, 2) @ places.transpose(2, 3)
        distances = _shifted(about_places) * scale  # (B, H, F, F)
        found = F.scaled_dot_product_attention(
            (queries + self.pos_bias_u).transpose(1, 2).to(values.dtype),
            keys,
            values,
            distances.to(values.dtype).masked_fill(beyond, -torch.inf),
            dropout_p=self.dropout if self.training else 0.0,
            scale=scale,
        )
        attended: Tensor = self.linear_out(found.transpose(1, 2).flatten(2))
        return attended

    def _by_head(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.heads, -1).transpose(1, 2)


class Convolution(nn.Module):
    """A gate, a depth-wise convolution and a norm."""

    def __init__(self, shape: ConformerShape, is_frozen: bool) -> None:
        super().__init__()
        width, kernel = shape.width, shape.kernel
        self.pointwise_conv1 = nn.Conv1d(width, 2 * width, 1, bias=shape.has_bias)
        self.depthwise_conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width, bias=shape.has_bias)
        self.batch_norm = BatchNorm(width, is_frozen=is_frozen)
        self.pointwise_conv2 = nn.Conv1d(width, width, 1, bias=shape.has_bias)

    def forward(self, hidden: Tensor, own: Own) -> Tensor:
        """The convolved frames (B, F, D)."""
        gated = own.only(F.glu(self.pointwise_conv1(hidden.transpose(1, 2)), dim=1))
        normed = F.silu(self.batch_norm(self.depthwise_conv(gated), own))
        convolved: Tensor = self.pointwise_conv2(normed).transpose(1, 2)
        return convolved


class FeedForward(nn.Module):
    """Two linear layers."""

    def __init__(self, shape: ConformerShape) -> None:
        super().__init__()
        self.linear1 = nn.Linear(shape.width, shape.inner, bias=shape.has_bias)
        self.linear2 = nn.Linear(shape.inner, shape.width, bias=shape.has_bias)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """What is added to the frames (B, F, D)."""
        added: Tensor = self.linear2(self.dropout(F.silu(self.linear1(hidden))))
        return added


class ConformerLayer(nn.Module):
    """Half a feed-forward, attention, convolution, and the other half."""

    def __init__(self, shape: ConformerShape, is_frozen: bool) -> None:
        super().__init__()
        self.norm_feed_forward1 = nn.LayerNorm(shape.width)
        self.feed_forward1 = FeedForward(shape)
        self.norm_self_att = nn.LayerNorm(shape.width)
        self.self_attn = RelativeAttention(shape)
        self.norm_conv = nn.LayerNorm(shape.width)
        self.conv = Convolution(shape, is_frozen)
        self.norm_feed_forward2 = nn.LayerNorm(shape.width)
        self.feed_forward2 = FeedForward(shape)
        self.norm_out = nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, positions: Tensor, own: Own) -> Tensor:
        """The next frames (B, F, D)."""
        hidden = hidden + self.dropout(self.feed_forward1(self.norm_feed_forward1(hidden))) * 0.5
        hidden = hidden + self.dropout(self.self_attn(self.norm_self_att(hidden), positions, own.beyond[:, None]))
        hidden = hidden + self.dropout(self.conv(self.norm_conv(hidden), own))
        hidden = hidden + self.dropout(self.feed_forward2(self.norm_feed_forward2(hidden))) * 0.5
        normed: Tensor = self.norm_out(hidden)
        return normed


class Conformer(nn.Module):
    """Log-mel energies to frames."""

    def __init__(self, shape: ConformerShape, is_frozen: bool = False, saves_memory: bool = False) -> None:
        super().__init__()
        self.pre_encode = Subsampling(shape)
        self.layers = nn.ModuleList(ConformerLayer(shape, is_frozen) for _ in range(shape.layers))
        self.scale = math.sqrt(shape.width) if shape.scales_input else 1.0
        self.dropout = nn.Dropout(shape.dropout_before)
        self.dropout_positions = nn.Dropout(shape.dropout_positions)
        self.stride = shape.factor
        self.saves_memory = saves_memory

    def forward(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, F / factor, D) of log-mel energies (B, M, F), and how many are each row's own."""
        states, counts = self.states(mels, lengths)
        (hidden,) = deque(states, maxlen=1)  # no other is kept
        return hidden, counts

    def states(self, mels: Tensor, lengths: Tensor) -> tuple[Iterator[Tensor], Tensor]:
        """The input of the first layer and each layer's output, and how many frames are each row's own."""
        hidden, own = self.pre_encode(mels, lengths)
        return self._run_layers(hidden, own), own.lengths

    def _run_layers(self, hidden: Tensor, own: Own) -> Iterator[Tensor]:
        positions = sinusoids(hidden.shape[1], hidden.shape[2], hidden.device).to(hidden.dtype)
        positions = self.dropout_positions(positions)
        hidden = self.dropout(hidden * self.scale)
        for layer in self.layers:
            yield hidden
            saves_memory = self.saves_memory and self.training
            hidden = run_layer(layer, hidden, positions, own, saves_memory=saves_memory)
        yield hidden

    def frames(self, count: int) -> int:
        """How many frames come of so many."""
        return functools.reduce(lambda left, _: -(-left // 2), range(self.pre_encode.halvings), count)


def sinusoids(frames: int, width: int, device: torch.device) -> Tensor:
    """Relative positions (1, 2 F - 1, D), from what is farthest before to what is farthest after."""
    places = torch.arange(frames - 1, -frames, -1, dtype=torch.float32, device=device)[:, None]
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float32, device=device) * -(math.log(10_000) / width))
    return torch.stack([(places * rates).sin(), (places * rates).cos()], dim=2).flatten(1)[None]


def _shifted(scores: Tensor) -> Tensor:
    """Scores by distance (B, H, F, 2 F - 1) as scores by place (B, H, F, F)."""
    rows, heads, frames, places = scores.shape
    padded = F.pad(scores, (1, 0)).view(rows, heads, places + 1, frames)
    return padded[:, :, 1:].reshape(rows, heads, frames, places)[..., :frames]

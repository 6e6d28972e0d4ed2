"""Conformer (arXiv 2005.08100) and FastConformer (arXiv 2305.05084) encoders, with NeMo's names for their weights.

Convolutions, attention and norms look at an utterance's own frames only. A streaming encoder (arXiv 2312.17279) has
causal convolutions, and attention that is limited to its chunk and some before it; `_conformer_stream.py` runs it chunk
by chunk.
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
from attune.families._positions import by_place, relative_sinusoids
from attune.kernels.recompute import run_layer


class Subsampling(nn.Module):
    """Log-mel energies to fewer frames, by convolutions that each make one of two."""

    def __init__(self, shape: ConformerShape) -> None:
        super().__init__()
        self.halvings = int(math.log2(shape.factor))
        self.is_causal = shape.is_causal
        self.conv = nn.Sequential(*self._layers(shape))
        bins = functools.reduce(lambda count, _: self.halved(count), range(self.halvings), shape.bins)
        self.out = nn.Linear(shape.channels * bins, shape.width)

    def _layers(self, shape: ConformerShape) -> list[nn.Module]:
        channels, padding = shape.channels, 0 if shape.is_causal else 1
        layers: list[nn.Module] = [nn.Conv2d(1, channels, 3, 2, padding), nn.ReLU()]
        for _ in range(self.halvings - 1):
            if shape.subsampling == "dw_striding":
                strided = nn.Conv2d(channels, channels, 3, 2, padding, groups=channels)
                layers += [strided, nn.Conv2d(channels, channels, 1)]
            else:
                layers += [nn.Conv2d(channels, channels, 3, 2, padding)]
            layers += [nn.ReLU()]
        return layers

    def halved(self, count: int) -> int:
        """How many frames or bins a convolution with a stride makes of so many."""
        return (count + 2) // 2 if self.is_causal else (count + 1) // 2

    def forward(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Own]:
        """Frames (B, F / factor, D) of log-mel energies (B, M, F), and which are each row's own."""
        hidden, own = mels.transpose(1, 2)[:, None], own_of(lengths, mels.shape[2])  # (B, 1, F, M)
        for layer in self.conv:
            if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2):
                hidden, own = self._strided(layer, hidden.masked_fill(own.beyond[..., None], 0), own)
            else:
                hidden = layer(hidden)  # frame by frame
        hidden = hidden.masked_fill(own.beyond[..., None], 0)
        return self.out(hidden.transpose(1, 2).flatten(2)), own

    def _strided(self, layer: nn.Conv2d, hidden: Tensor, own: Own) -> tuple[Tensor, Own]:
        if not self.is_causal:
            return layer(hidden), own.strided(2)
        convolved = layer(F.pad(hidden, (2, 1, 2, 1)))  # time and bins alike, as NeMo does
        return convolved, own_of(own.lengths // 2 + 1, convolved.shape[2])


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

    def forward(self, hidden: Tensor, positions: Tensor, beyond: Tensor, before: Tensor | None = None) -> Tensor:
        """Look at everything but what is beyond (B, 1, 1 or F, F): (B, F, D).

        `before` are frames that precede these (B, L, D), to look at but not from; `beyond` counts them too.
        """
        queries = self.linear_q(hidden).view(*hidden.shape[:2], self.heads, -1)  # (B, F, H, D / H)
        seen = hidden if before is None else torch.cat([before, hidden], 1)
        keys, values = self._by_head(self.linear_k(seen)), self._by_head(self.linear_v(seen))
        places = self._by_head(self.linear_pos(positions))  # (1, H, P, D / H)
        scale = queries.shape[-1] ** -0.5
        about_places = (queries + self.pos_bias_v).transpose(1, 2) @ places.transpose(2, 3)
        shift = by_place if before is None else _looked_up
        distances = shift(about_places) * scale  # (B, H, F, L + F)
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
        self.before = kernel - 1 if shape.is_causal else 0  # frames to put before the first
        padding = 0 if shape.is_causal else kernel // 2
        self.depthwise_conv = nn.Conv1d(width, width, kernel, padding=padding, groups=width, bias=shape.has_bias)
        # NeMo calls either so.
        self.batch_norm = nn.LayerNorm(width) if shape.has_layer_norm else BatchNorm(width, is_frozen=is_frozen)
        self.pointwise_conv2 = nn.Conv1d(width, width, 1, bias=shape.has_bias)

    def forward(self, hidden: Tensor, own: Own) -> Tensor:
        """The convolved frames (B, F, D)."""
        gated = self.gate(hidden, own)
        return self.convolve(F.pad(gated, (self.before, 0)) if self.before else gated, own)

    def gate(self, hidden: Tensor, own: Own) -> Tensor:
        """The gated frames (B, D, F), zero beyond the own ones."""
        return own.only(F.glu(self.pointwise_conv1(hidden.transpose(1, 2)), dim=1))

    def convolve(self, gated: Tensor, own: Own) -> Tensor:
        """What becomes (B, F, D) of gated frames with those around them."""
        frames = self.depthwise_conv(gated)
        if isinstance(self.batch_norm, BatchNorm):
            normed = self.batch_norm(frames, own)
        else:
            normed = self.batch_norm(frames.transpose(1, 2)).transpose(1, 2)
        convolved: Tensor = self.pointwise_conv2(F.silu(normed)).transpose(1, 2)
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

    def forward(self, hidden: Tensor, positions: Tensor, own: Own, unseen: Tensor) -> Tensor:
        """The next frames (B, F, D); each does not look at what is `unseen` (B, 1, 1 or F, F)."""
        hidden = hidden + self.dropout(self.feed_forward1(self.norm_feed_forward1(hidden))) * 0.5
        hidden = hidden + self.dropout(self.self_attn(self.norm_self_att(hidden), positions, unseen))
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
        self.context = shape.context
        self.look_ahead = shape.context.look_aheads[0] if shape.context else None  # while it is not being trained

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
        positions = relative_sinusoids(hidden.shape[1], hidden.shape[2], hidden.device).to(hidden.dtype)
        positions = self.dropout_positions(positions)
        hidden = self.dropout(hidden * self.scale)
        unseen = self._unseen(own)
        for layer in self.layers:
            yield hidden
            saves_memory = self.saves_memory and self.training
            hidden = run_layer(layer, hidden, positions, own, unseen, saves_memory=saves_memory)
        yield hidden

    def _unseen(self, own: Own) -> Tensor:
        """What attention does not see: padding (B, 1, 1, F) and, where its context is limited, more (B, 1, F, F)."""
        if self.context is None or self.look_ahead is None:
            return own.beyond[:, None]
        look_aheads = self.context.look_aheads
        # In training each micro-batch has one of them; its seed chooses.
        drawn = look_aheads[int(torch.randint(len(look_aheads), ()))] if self.training else self.look_ahead
        frames = own.beyond.shape[2]
        chunks = torch.arange(frames, device=own.beyond.device) // (drawn + 1)
        behind = chunks[:, None] - chunks
        is_out_of_reach = (behind < 0) | (behind > chunks_before(self.context.left, drawn))
        itself = torch.eye(frames, dtype=torch.bool, device=own.beyond.device)  # padding has to see something
        return (own.beyond[:, None] | is_out_of_reach) & ~itself

    def frames(self, count: int) -> int:
        """How many frames come of so many."""
        return functools.reduce(lambda left, _: self.pre_encode.halved(left), range(self.pre_encode.halvings), count)


def chunks_before(left: int, look_ahead: int) -> int:
    """How many chunks before its own a frame sees."""
    return left // (look_ahead + 1) if left >= 0 else 1 << 30


def _looked_up(scores: Tensor) -> Tensor:
    """Scores by distance (B, H, F, P) of the last F of N = (P + 1) / 2 places, as scores by place (B, H, F, N)."""
    frames, places = scores.shape[2], (scores.shape[3] + 1) // 2
    of_query = torch.arange(places - frames, places, device=scores.device)[:, None]
    distance = of_query - torch.arange(places, device=scores.device)  # (F, places)
    return scores.gather(3, (places - 1 - distance).expand(*scores.shape[:2], -1, -1))

"""Self-attention over each utterance's own frames, with the five ways that encoders know places.

Always `scaled_dot_product_attention`: whatever is known of places is added to its scores as a bias.
"""

# B batch, F frames, D width, H heads, P relative positions (2 F - 1)
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families._positions import by_place, relative_sinusoids
from attune.families.ssl.encoder.shape import EncoderShape


class SelfAttention(nn.Module):
    """Several heads. `places` is what `Places` says of so many frames, the same for all layers."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.positions = shape.positions
        self.dropout = shape.attention_dropout
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)
        size = width // shape.heads
        if shape.positions == "gated":
            self.gru_rel_pos_const = nn.Parameter(torch.ones(1, shape.heads, 1, 1))
            self.gru_rel_pos_linear = nn.Linear(size, 8)
        elif shape.positions == "relative":
            self.linear_pos = nn.Linear(width, width, bias=False)
            self.pos_bias_u = nn.Parameter(torch.zeros(shape.heads, size))
            self.pos_bias_v = nn.Parameter(torch.zeros(shape.heads, size))
        elif shape.positions == "relative_key":
            self.distance_embedding = nn.Embedding(shape.left_distance + shape.right_distance + 1, size)

    def forward(self, hidden: Tensor, mask: Tensor, places: Tensor | None) -> Tensor:
        """Look at what the mask (B, 1, 1, F) leaves: (B, F, D)."""
        rotated = _rotated(hidden, places, self.heads) if self.positions == "rotary" and places is not None else hidden
        queries, keys = self._by_head(self.q_proj(rotated)), self._by_head(self.k_proj(rotated))
        values = self._by_head(self.v_proj(hidden))
        scale = queries.shape[-1] ** -0.5
        bias = self._bias(hidden, queries, places, scale)
        if self.positions == "relative":
            queries = (queries + self.pos_bias_u[:, None]).to(values.dtype)
        seen = mask if bias is None else bias.to(values.dtype).masked_fill(~mask, -torch.inf)
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(queries, keys, values, seen, dropout_p=dropout, scale=scale)
        attended: Tensor = self.out_proj(found.transpose(1, 2).flatten(2))
        return attended

    def _bias(self, hidden: Tensor, queries: Tensor, places: Tensor | None, scale: float) -> Tensor | None:
        """What is added to the scores (B, H, F, F)."""
        if places is None:
            return None
        match self.positions:
            case "gated":
                gates = self.gru_rel_pos_linear(self._by_head(hidden))  # (B, H, F, 8)
                reset, update = gates.view(*gates.shape[:-1], 2, 4).sum(-1).sigmoid().chunk(2, dim=-1)
                bias: Tensor = (reset * (update * self.gru_rel_pos_const - 1) + 2) * places
                return bias
            case "relative":
                known = self._by_head(self.linear_pos(places))  # (1, H, P, D / H)
                return by_place((queries + self.pos_bias_v[:, None]) @ known.mT) * scale
            case "relative_key":
                return torch.einsum("bhqd,qkd->bhqk", queries, self.distance_embedding(places)) * scale
        return None

    def _by_head(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.heads, -1).transpose(1, 2)


class Places(nn.Module):
    """What all layers know of the places of so many frames; WavLM's buckets are learned."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.shape = shape
        if shape.positions == "gated":
            self.rel_attn_embed = nn.Embedding(shape.buckets, shape.heads)

    def forward(self, hidden: Tensor) -> Tensor | None:
        """(H, F, F), (1, P, D), (F, F) or (2, F, D / H), as attention takes it."""
        count, device, shape = hidden.shape[1], hidden.device, self.shape
        match shape.positions:
            case "gated":
                buckets = _buckets(_distances(count, device), shape.buckets // 2, shape.bucket_distance)
                found: Tensor = self.rel_attn_embed(buckets).permute(2, 0, 1)
                return found
            case "relative":
                return relative_sinusoids(count, shape.width, device).to(hidden.dtype)
            case "relative_key":
                return _distances(count, device).clamp(-shape.left_distance, shape.right_distance) + shape.left_distance
            case "rotary":
                return _rotations(count, shape.width // shape.heads, shape.rotary_base, device).to(hidden.dtype)
        return None


def _distances(count: int, device: torch.device) -> Tensor:
    """How far each key is after each query (F, F)."""
    here = torch.arange(count, device=device)
    return here[None] - here[:, None]


def _buckets(distances: Tensor, buckets: int, farthest: int) -> Tensor:
    """T5's buckets: near distances have one each, far ones share them by their logarithm."""
    exact = buckets // 2
    away = distances.abs()
    # In float32 and in this order: a bucket's edge would otherwise move by one frame.
    shared = torch.log(away.float() / exact) / math.log(farthest / exact) * (buckets - exact)
    far = (exact + shared.clamp(min=0)).long().clamp(max=buckets - 1)
    return torch.where(away < exact, away, far) + (distances > 0) * buckets


def _rotations(count: int, size: int, base: float, device: torch.device) -> Tensor:
    """Cosines and sines (2, F, D / H)."""
    rates = base ** -(torch.arange(0, size, 2, dtype=torch.float32, device=device) / size)
    angles = torch.arange(count, dtype=torch.float32, device=device)[:, None] * rates
    angles = torch.cat([angles, angles], dim=1)
    return torch.stack([angles.cos(), angles.sin()])


def _rotated(hidden: Tensor, rotations: Tensor, heads: int) -> Tensor:
    """The input of queries and keys (B, F, D), turned by its place."""
    by_head = hidden.view(*hidden.shape[:2], heads, -1)  # (B, F, H, D / H)
    first, second = by_head.chunk(2, dim=-1)
    cosines, sines = rotations[:, :, None]
    turned: Tensor = by_head * cosines + torch.cat([-second, first], dim=-1) * sines
    return turned.flatten(2)

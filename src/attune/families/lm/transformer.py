"""Transformer language models: causal self-attention with norms before each block, and sinusoidal positions.

In a search every row keeps the keys and values of its own tokens, as many as it has: rows that stand still in between
are as far as they are. The cache grows by blocks, so that its shape changes seldom.
"""

# R rows, U tokens, S places of the cache, L layers, D width, H heads, V vocabulary
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.types import States

BLOCK = 32  # places that a cache grows by


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerLmShape:
    """The sizes of a Transformer language model."""

    tokens: int
    width: int = 768
    heads: int = 12
    layers: int = 12
    feed_forward: int = 3072
    dropout: float = 0.0


class TransformerLmLayer(nn.Module):
    """Self-attention and a feed-forward block."""

    def __init__(self, shape: TransformerLmShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.q_proj = nn.Linear(shape.width, shape.width)
        self.k_proj = nn.Linear(shape.width, shape.width)
        self.v_proj = nn.Linear(shape.width, shape.width)
        self.out_proj = nn.Linear(shape.width, shape.width)
        self.norm = nn.LayerNorm(shape.width)
        self.fc1 = nn.Linear(shape.width, shape.feed_forward)
        self.fc2 = nn.Linear(shape.feed_forward, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def keys_values(self, hidden: Tensor) -> Tensor:
        """What later tokens look at, keys and values (R, U, 2, D)."""
        normed = self.attention_norm(hidden)
        return torch.stack([self.k_proj(normed), self.v_proj(normed)], 2)

    def forward(self, hidden: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        """Outputs (R, U, D), from what is seen (R, S, 2, D); without a mask (R, 1, U, S), all up to the own place."""
        queries = self._by_head(self.q_proj(self.attention_norm(hidden)))
        keys, values = (self._by_head(each) for each in seen.unbind(2))
        found = F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=mask is None)
        hidden = hidden + self.dropout(self.out_proj(found.transpose(1, 2).flatten(2)))
        inner = self.fc2(F.gelu(self.fc1(self.norm(hidden))))
        output: Tensor = hidden + self.dropout(inner)
        return output

    def _by_head(self, hidden: Tensor) -> Tensor:
        return hidden.view(*hidden.shape[:2], self.heads, -1).transpose(1, 2)


class TransformerLm(nn.Module):
    """Tokens in, logits of the next ones out; token 0 begins and ends a text."""

    def __init__(self, shape: TransformerLmShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.tokens, shape.width)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)
        self.layers = nn.ModuleList(TransformerLmLayer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.tokens)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, tokens: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """Logits (R, U, V) of what follows each of the tokens (R, U), and the states after them.

        With states, each row has one more token. In training there are none.
        """
        if states:
            return self._step(tokens, *states)
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        hidden, seen = self._embedded(tokens, places), []
        for layer in self._layers():
            seen.append(layer.keys_values(hidden))
            hidden = layer(hidden, seen[-1], None)
        logits = self.output(self.norm(hidden))
        lengths = tokens.new_full((len(tokens),), tokens.shape[1])
        return logits, () if self.training else (torch.stack(seen, 2), lengths)

    def _step(self, tokens: Tensor, cache: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
        """One more token for each row (R, 1), which has as many as its length says (R,) in the cache."""
        cache = _grown(cache, int(lengths.max()) + 1)
        rows, places = torch.arange(len(tokens), device=tokens.device), lengths[:, None]
        mask = (torch.arange(cache.shape[1], device=tokens.device) <= places)[:, None, None]
        hidden = self._embedded(tokens, places)
        for number, layer in enumerate(self._layers()):
            cache[rows, lengths, number] = layer.keys_values(hidden)[:, 0]
            hidden = layer(hidden, cache[:, :, number], mask)
        return self.output(self.norm(hidden)), (cache, lengths + 1)

    def _layers(self) -> Iterator[TransformerLmLayer]:
        return (cast(TransformerLmLayer, layer) for layer in self.layers)

    def _embedded(self, tokens: Tensor, places: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(tokens) * math.sqrt(self.shape.width) + self._positions(places)
        dropped: Tensor = self.dropout(embedded)
        return dropped

    def _positions(self, places: Tensor) -> Tensor:
        """Sines and cosines of the places (R, U, D)."""
        half = self.shape.width // 2
        rates = torch.exp(torch.arange(half, device=places.device) * (-math.log(10_000.0) / max(1, half - 1)))
        angles = places[..., None] * rates
        return torch.cat([angles.sin(), angles.cos()], -1).to(self.embedding.weight.dtype)


def _grown(cache: Tensor, places: int) -> Tensor:
    """A copy of the cache (R, S, L, 2, D) with room for so many places."""
    missing = -(-places // BLOCK) * BLOCK - cache.shape[1]
    return F.pad(cache, (0, 0, 0, 0, 0, 0, 0, missing)) if missing > 0 else cache.clone()

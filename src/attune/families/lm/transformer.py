"""Transformer language models: causal self-attention and sinusoidal positions, our own and SpeechBrain's.

In a search every row keeps the keys and values of its own tokens, as many as it has: rows that stand still in between
are as far as they are. The cache grows by blocks, so that its shape changes seldom.
"""

# R rows, U tokens, S places of the cache, L layers, D width, H heads, V vocabulary
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.errors import ModelError
from attune.types import States

BLOCK = 32  # places that a cache grows by


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerLmShape:
    """The sizes of a Transformer language model, and what differs between toolkits."""

    tokens: int
    width: int = 768
    heads: int = 12
    layers: int = 12
    feed_forward: int = 3072
    dropout: float = 0.0
    embedding: int | None = None  # width of the embeddings, if they are projected to that of the layers
    activation: Literal["gelu", "relu"] = "gelu"
    norms: Literal["before", "after"] = "before"  # each block
    epsilon: float = 1e-5  # of the norms
    positions: Literal["halves", "pairs"] = "halves"  # all sines and then all cosines, or each sine with its cosine
    is_output_deep: bool = False  # a linear layer and a norm before the output
    begin: int = 0  # the token that begins a text
    end: int = 0
    padding: int | None = None  # a token that no place attends to

    def __post_init__(self) -> None:
        sizes = (self.tokens, self.width, self.heads, self.layers, self.feed_forward, self.embedding or 1)
        if min(sizes) < 1 or self.width % 2 or self.width % self.heads:
            raise ModelError(f"Invalid sizes of a Transformer language model: {self}.")


class TransformerLmLayer(nn.Module):
    """Self-attention and a feed-forward block."""

    def __init__(self, shape: TransformerLmShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.is_normed_before = shape.norms == "before"
        self.activation = F.gelu if shape.activation == "gelu" else F.relu
        self.attention_norm = nn.LayerNorm(shape.width, shape.epsilon)
        self.q_proj = nn.Linear(shape.width, shape.width)
        self.k_proj = nn.Linear(shape.width, shape.width)
        self.v_proj = nn.Linear(shape.width, shape.width)
        self.out_proj = nn.Linear(shape.width, shape.width)
        self.norm = nn.LayerNorm(shape.width, shape.epsilon)
        self.fc1 = nn.Linear(shape.width, shape.feed_forward)
        self.fc2 = nn.Linear(shape.feed_forward, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def keys_values(self, hidden: Tensor) -> Tensor:
        """What later tokens look at, keys and values (R, U, 2, D)."""
        normed = self._before(self.attention_norm, hidden)
        return torch.stack([self.k_proj(normed), self.v_proj(normed)], 2)

    def forward(self, hidden: Tensor, seen: Tensor, mask: Tensor | None) -> Tensor:
        """Outputs (R, U, D), from what is seen (R, S, 2, D); without a mask (R, 1, U, S), all up to the own place."""
        queries = self._by_head(self.q_proj(self._before(self.attention_norm, hidden)))
        keys, values = (self._by_head(each) for each in seen.unbind(2))
        found = F.scaled_dot_product_attention(queries, keys, values, mask, is_causal=mask is None)
        attended = hidden + self.dropout(self.out_proj(found.transpose(1, 2).flatten(2)))
        hidden = self._after(self.attention_norm, attended)
        inner = self.fc2(self.activation(self.fc1(self._before(self.norm, hidden))))
        return self._after(self.norm, hidden + self.dropout(inner))

    def _before(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        return norm(hidden) if self.is_normed_before else hidden

    def _after(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        return hidden if self.is_normed_before else norm(hidden)

    def _by_head(self, hidden: Tensor) -> Tensor:
        return hidden.view(*hidden.shape[:2], self.heads, -1).transpose(1, 2)


class TransformerLm(nn.Module):
    """Tokens in, logits of the next ones out; the shape says which token begins a text and which one ends it."""

    def __init__(self, shape: TransformerLmShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding_width = shape.embedding or shape.width
        self.embedding = nn.Embedding(shape.tokens, self.embedding_width)
        nn.init.normal_(self.embedding.weight, std=self.embedding_width**-0.5)
        self.projection = nn.Linear(shape.embedding, shape.width) if shape.embedding else nn.Identity()
        self.layers = nn.ModuleList(TransformerLmLayer(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, shape.epsilon)
        self.before_output = _deep_output(shape) if shape.is_output_deep else nn.Identity()
        self.output = nn.Linear(shape.width, shape.tokens)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, tokens: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """Logits (R, U, V) of what follows each of the tokens (R, U), and the states after them.

        With states, each row has one more token. In training there are none.
        """
        if states:
            return self._step(tokens, *states)
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        is_seen = self._is_seen(tokens)
        mask = None if self.shape.padding is None else _up_to_each(is_seen)
        hidden, seen = self._embedded(tokens, places), []
        for layer in self._layers():
            seen.append(layer.keys_values(hidden))
            hidden = layer(hidden, seen[-1], mask)
        lengths = tokens.new_full((len(tokens),), tokens.shape[1])
        return self._logits(hidden), () if self.training else (torch.stack(seen, 2), is_seen, lengths)

    def _step(self, tokens: Tensor, cache: Tensor, is_seen: Tensor, lengths: Tensor) -> tuple[Tensor, States]:
        """One more token for each row (R, 1), which has as many as its length says (R,) in the cache."""
        count = int(lengths.max()) + 1
        cache, is_seen = _grown(cache, count), _grown(is_seen, count)
        rows = torch.arange(len(tokens), device=tokens.device)
        is_seen[rows, lengths] = self._is_seen(tokens)[:, 0]
        hidden = self._embedded(tokens, lengths[:, None])
        for number, layer in enumerate(self._layers()):
            cache[rows, lengths, number] = layer.keys_values(hidden)[:, 0]
            hidden = layer(hidden, cache[:, :, number], is_seen[:, None, None])
        return self._logits(hidden), (cache, is_seen, lengths + 1)

    def _layers(self) -> Iterator[TransformerLmLayer]:
        return (cast(TransformerLmLayer, layer) for layer in self.layers)

    def _is_seen(self, tokens: Tensor) -> Tensor:
        """Which of the tokens (R, U) are attended to, from their own place on."""
        return torch.ones_like(tokens).bool() if self.shape.padding is None else tokens != self.shape.padding

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(self.before_output(self.norm(hidden)))
        return logits

    def _embedded(self, tokens: Tensor, places: Tensor) -> Tensor:
        embedded = self.projection(self.embedding(tokens) * math.sqrt(self.embedding_width))
        dropped: Tensor = self.dropout(embedded + self._positions(places))
        return dropped

    def _positions(self, places: Tensor) -> Tensor:
        """Sines and cosines of the places (R, U, D)."""
        half = self.shape.width // 2
        is_halves = self.shape.positions == "halves"
        steps = max(1, half - 1) if is_halves else half
        rates = torch.exp(torch.arange(half, device=places.device) * (-math.log(10_000.0) / steps))
        angles = places[..., None] * rates
        waves = (angles.sin(), angles.cos())
        joined = torch.cat(waves, -1) if is_halves else torch.stack(waves, -1).flatten(-2)
        return joined.to(self.embedding.weight.dtype)


def _deep_output(shape: TransformerLmShape) -> nn.Sequential:
    return nn.Sequential(nn.Linear(shape.width, shape.width), nn.LayerNorm(shape.width, shape.epsilon))


def _up_to_each(is_seen: Tensor) -> Tensor:
    """Which places (R, U) each place attends to: those that are seen, up to its own (R, 1, U, U)."""
    count = is_seen.shape[1]
    return is_seen[:, None, None] & torch.ones(count, count, dtype=torch.bool, device=is_seen.device).tril()


def _grown(cache: Tensor, places: int) -> Tensor:
    """A copy of what is kept for each place (R, S, …) with room for so many places."""
    missing = -(-places // BLOCK) * BLOCK - cache.shape[1]
    return F.pad(cache, (*[0] * (2 * (cache.dim() - 2)), 0, missing)) if missing > 0 else cache.clone()

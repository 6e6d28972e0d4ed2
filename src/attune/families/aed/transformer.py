"""Transformer encoder and decoder: attention to own frames and earlier tokens only, a norm before each part."""

# U utterances, K rows of each, R = U × K rows, F frames, N tokens, D width, H heads, V vocabulary
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families._conformer import Conformer, Subsampling
from attune.families._conformer_shape import ConformerShape
from attune.families._positions import sinusoids
from attune.families.aed.shape import AttentionEncoderShape, TransformerDecoderShape


class HeadAttention(nn.Module):
    """Several heads of attention; keys and values can be kept."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)

    def keys_and_values(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Of what is attended to (R, F, D): (R, H, F, D / H) each."""
        return self._by_head(self.k_proj(hidden)), self._by_head(self.v_proj(hidden))

    def forward(self, hidden: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None = None) -> Tensor:
        """What (R, N, D) finds among keys and values, where allowed (R, 1, N or 1, F)."""
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(self._by_head(self.q_proj(hidden)), keys, values, allowed, dropout)
        attended: Tensor = self.out_proj(found.transpose(1, 2).flatten(2))
        return attended

    def weights(self, hidden: Tensor, keys: Tensor, allowed: Tensor) -> Tensor:
        """Where each (R, N, D) looks, the mean of all heads (R, N, F)."""
        scores = self._by_head(self.q_proj(hidden)) @ keys.transpose(2, 3) / math.sqrt(keys.shape[-1])
        return scores.float().masked_fill(~allowed, -torch.inf).softmax(-1).mean(1)

    def _by_head(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:2], self.heads, states.shape[2] // self.heads).transpose(1, 2)


class PositionwiseLayers(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """What is added (R, N, D)."""
        added: Tensor = self.linear2(self.dropout(F.gelu(self.linear1(hidden))))
        return added


class AttentionEncoderLayer(nn.Module):
    """Self-attention and two linear layers."""

    def __init__(self, shape: AttentionEncoderShape) -> None:
        super().__init__()
        self.norm_attention, self.norm_layers = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.attention = HeadAttention(shape.width, shape.heads, shape.dropout)
        self.layers = PositionwiseLayers(shape.width, shape.inner, shape.dropout)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor, allowed: Tensor) -> Tensor:
        """The next frames (R, F, D)."""
        normed = self.norm_attention(hidden)
        hidden = hidden + self.dropout(self.attention(normed, *self.attention.keys_and_values(normed), allowed))
        following: Tensor = hidden + self.dropout(self.layers(self.norm_layers(hidden)))
        return following


class TransformerEncoder(nn.Module):
    """Energies to frames, one in `factor`."""

    def __init__(self, shape: ConformerShape, layers: AttentionEncoderShape) -> None:
        super().__init__()
        self.pre_encode = Subsampling(shape)
        self.layers = nn.ModuleList(AttentionEncoderLayer(layers) for _ in range(layers.layers))
        self.norm = nn.LayerNorm(layers.width)
        self.dropout = nn.Dropout(layers.dropout)

    def forward(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Frames (B, F / factor, D) of energies (B, M, F), and how many are each row's own."""
        hidden, own = self.pre_encode(mels, lengths)
        hidden = self.dropout(hidden * math.sqrt(hidden.shape[2]) + positions_of(hidden))
        for layer in self.layers:
            hidden = layer(hidden, ~own.beyond[:, None])
        return self.norm(hidden), own.lengths

    def frames(self, count: int) -> int:
        """How many frames come of so many."""
        return -(-count // (1 << self.pre_encode.halvings))


class AttentionEncoder(nn.Module):
    """A Conformer or Transformer encoder, for energies (B, F, M) as the front end has them."""

    def __init__(self, shape: AttentionEncoderShape, mels: int) -> None:
        super().__init__()
        sizes = _conformer_shape(shape, mels)
        self.stack = Conformer(sizes) if shape.kind == "conformer" else TransformerEncoder(sizes, shape)

    def forward(self, mels: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Energies (B, F, M) to frames (B, F / factor, D), and how many are each row's own."""
        encoded: tuple[Tensor, Tensor] = self.stack(mels.transpose(1, 2), lengths)
        return encoded

    def frames(self, mel_frames: int) -> int:
        """How many frames come from so many of the front end."""
        return self.stack.frames(mel_frames)


def _conformer_shape(shape: AttentionEncoderShape, mels: int) -> ConformerShape:
    return ConformerShape(
        bins=mels,
        width=shape.width,
        layers=shape.layers,
        heads=shape.heads,
        inner=shape.inner,
        kernel=shape.kernel,
        subsampling="striding",
        factor=shape.factor,
        channels=shape.channels,
        scales_input=True,
        has_bias=True,
        dropout=shape.dropout,
        dropout_before=shape.dropout,
        dropout_positions=0.0,
        dropout_attention=shape.dropout,
    )


def positions_of(hidden: Tensor, first: int = 0) -> Tensor:
    """Sinusoids (N, D) for the places from `first` on of what is (R, N, D)."""
    places = torch.arange(first, first + hidden.shape[1], dtype=torch.float32, device=hidden.device)
    return sinusoids(places, hidden.shape[2]).to(hidden.dtype)


@dataclass(frozen=True, slots=True)
class CrossMemory:
    """The encoder's frames as every layer of the decoder needs them, once for all rows of an utterance."""

    keys: tuple[Tensor, ...]  # (U, H, F, D / H) of each layer
    values: tuple[Tensor, ...]
    own: Tensor  # (U, 1, 1, F)

    def select(self, utterances: Tensor) -> CrossMemory:
        """The frames of these utterances."""
        return CrossMemory(
            tuple(each[utterances] for each in self.keys),
            tuple(each[utterances] for each in self.values),
            self.own[utterances],
        )


@dataclass(frozen=True, slots=True)
class TransformerState:
    """What the decoder keeps of the tokens so far, by row: keys and values of each layer, and where it looked last."""

    keys: tuple[Tensor, ...]  # (R, H, N, D / H) of each layer
    values: tuple[Tensor, ...]
    attention: Tensor  # (R, F)

    def select(self, rows: Tensor) -> TransformerState:
        """The states of these rows."""
        return TransformerState(
            tuple(each[rows] for each in self.keys), tuple(each[rows] for each in self.values), self.attention[rows]
        )


class TransformerDecoderLayer(nn.Module):
    """Attention to earlier tokens, attention to the encoder's frames, and two linear layers."""

    def __init__(self, shape: TransformerDecoderShape, width: int) -> None:
        super().__init__()
        self.norm_self, self.norm_cross, self.norm_layers = (nn.LayerNorm(width) for _ in range(3))
        self.self_attention = HeadAttention(width, shape.heads, shape.dropout)
        self.cross_attention = HeadAttention(width, shape.heads, shape.dropout)
        self.layers = PositionwiseLayers(width, shape.inner, shape.dropout)
        self.dropout = nn.Dropout(shape.dropout)

    def attend_self(self, hidden: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None) -> Tensor:
        """What (R, N, D) is once it has looked at its tokens."""
        attended: Tensor = hidden + self.dropout(self.self_attention(self.norm_self(hidden), keys, values, allowed))
        return attended

    def attend_frames(self, hidden: Tensor, keys: Tensor, values: Tensor, own: Tensor) -> Tensor:
        """What it is once it has looked at the frames, and after the linear layers."""
        hidden = hidden + self.dropout(self.cross_attention(self.norm_cross(hidden), keys, values, own))
        following: Tensor = hidden + self.dropout(self.layers(self.norm_layers(hidden)))
        return following


class TransformerDecoder(nn.Module):
    """Tokens in, all at once or one at a time with a cache; what it says about the next ones out."""

    def __init__(self, shape: TransformerDecoderShape, width: int, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.stack = nn.ModuleList(TransformerDecoderLayer(shape, width) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, tokens)
        self.dropout = nn.Dropout(shape.dropout)

    @property
    def layers(self) -> list[TransformerDecoderLayer]:
        """The layers, first to last."""
        return cast("list[TransformerDecoderLayer]", list(self.stack))

    def attend(self, frames: Tensor, lengths: Tensor) -> CrossMemory:
        """What the decoder needs of the encoder's frames (U, F, D)."""
        pairs = [layer.cross_attention.keys_and_values(frames) for layer in self.layers]
        own = torch.arange(frames.shape[1], device=frames.device) < lengths[:, None]
        return CrossMemory(tuple(keys for keys, _ in pairs), tuple(values for _, values in pairs), own[:, None, None])

    def start(self, memory: CrossMemory) -> TransformerState:
        """Before the first token, a row of each utterance."""
        empty = tuple(each[:, :, :0] for each in memory.keys)
        return TransformerState(empty, empty, memory.own[:, 0, 0].float())

    def step(self, tokens: Tensor, memory: CrossMemory, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Logits (R, V) of what follows the next tokens (R,), and the new state."""
        hidden = self._embedded(tokens[:, None], state.keys[0].shape[2])
        kept_keys, kept_values, attention = [], [], state.attention
        for number, layer in enumerate(self.layers):
            new_keys, new_values = layer.self_attention.keys_and_values(layer.norm_self(hidden))
            keys = torch.cat([state.keys[number], new_keys], 2)
            values = torch.cat([state.values[number], new_values], 2)
            # The rows of an utterance look at its frames together, as if they were tokens of one row.
            looking = layer.attend_self(hidden, keys, values, None).view(len(memory.own), -1, hidden.shape[2])
            if layer is self.layers[-1]:
                attention = layer.cross_attention.weights(layer.norm_cross(looking), memory.keys[number], memory.own)
            hidden = layer.attend_frames(looking, memory.keys[number], memory.values[number], memory.own)
            hidden = hidden.view(len(tokens), 1, -1)
            kept_keys.append(keys)
            kept_values.append(values)
        logits: Tensor = self.output(self.norm(hidden))[:, 0]
        return logits, TransformerState(tuple(kept_keys), tuple(kept_values), attention.view(len(tokens), -1))

    def forward(self, tokens: Tensor, memory: CrossMemory) -> Tensor:
        """Logits (R, N, V) of what follows each of the tokens (R, N)."""
        hidden = self._embedded(tokens, 0)
        earlier = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device).tril()
        for number, layer in enumerate(self.layers):
            keys, values = layer.self_attention.keys_and_values(layer.norm_self(hidden))
            hidden = layer.attend_self(hidden, keys, values, earlier)
            hidden = layer.attend_frames(hidden, memory.keys[number], memory.values[number], memory.own)
        logits: Tensor = self.output(self.norm(hidden))
        return logits

    def _embedded(self, tokens: Tensor, first: int) -> Tensor:
        embedded = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        placed: Tensor = self.dropout(embedded + positions_of(embedded, first))
        return placed

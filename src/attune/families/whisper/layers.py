"""Whisper's encoder and decoder, with the names that transformers gives their weights.

Written out here, because windows shorter than 30 s need masks that transformers' modules do not pass on, and because
decoding keeps its own cache.
"""

# B batch, F frames, U tokens, D width, H heads, S cached tokens
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families.whisper.shape import WhisperShape
from attune.families.whisper.windows import attention_kernels
from attune.kernels.bf16_attention import bf16_attention
from attune.kernels.int8 import Int8Linear
from attune.kernels.recompute import run_layer

LONG = 1024  # frames from which attention's own kernels pay for a single query


@dataclass(frozen=True, slots=True)
class KeysValues:
    """What attention looks at: keys and values, each (B, H, F, D / H)."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Past:
    """The cache of one decoder layer, and the places of the next tokens in it.

    Behind places that are a slice the cache is cut off. Places on the device (n,) serve a step that is recorded once
    and replayed anywhere: the cache is looked at whole, and the mask hides what is not written yet.
    """

    cache: KeysValues  # (B, H, S, D / H)
    places: slice | Tensor
    mask: Tensor | None = None  # (1, 1, 1, S)

    def extended(self, new: KeysValues) -> KeysValues:
        """Write the new tokens behind the old ones; all of them together."""
        if isinstance(self.places, Tensor):
            self.cache.keys.index_copy_(2, self.places, new.keys)
            self.cache.values.index_copy_(2, self.places, new.values)
            return self.cache
        self.cache.keys[:, :, self.places] = new.keys
        self.cache.values[:, :, self.places] = new.values
        end = self.places.stop
        return KeysValues(self.cache.keys[:, :, :end], self.cache.values[:, :, :end])


@dataclass(slots=True)
class GrowingPast:
    """The cache of one decoder layer that is as long as there are tokens, for a graph that takes and returns it."""

    cache: KeysValues  # (B, H, S, D / H)
    places: Tensor  # (1,)
    mask: None = None

    def extended(self, new: KeysValues) -> KeysValues:
        """The new tokens behind the old ones; it becomes the cache."""
        self.cache = KeysValues(
            torch.cat([self.cache.keys, new.keys], 2), torch.cat([self.cache.values, new.values], 2)
        )
        return self.cache


AnyPast = Past | GrowingPast


class Attention(nn.Module):
    """Several heads that look at the same or at another sequence."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.scale = (width // heads) ** -0.5
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width)
        self.q_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)
        self.is_bf16 = False  # queries, keys and values of an int8 model

    def keys_values(self, states: Tensor) -> KeysValues:
        """What can be looked at in these states (B, F, D)."""
        return KeysValues(self._by_head(self.k_proj(states)), self._by_head(self.v_proj(states)))

    def forward(self, hidden: Tensor, seen: KeysValues, mask: Tensor | None, is_causal: bool = False) -> Tensor:
        """Look at what the mask leaves (B, U, D)."""
        # As OpenAI has it: scaled before the product.
        queries = self._by_head(self.q_proj(hidden) * self.scale)
        if self.is_bf16:
            return self._together(bf16_attention(queries, seen.keys, seen.values))
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(
            queries, seen.keys, seen.values, mask, dropout_p=dropout, is_causal=is_causal, scale=1.0
        )
        return self._together(found)

    def glance(self, hidden: Tensor, seen: KeysValues, mask: Tensor | None) -> Tensor:
        """The same for few queries in evaluation: plain products, where a kernel for long sequences does not pay."""
        scores = self.scores(hidden, seen)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        return self._together(scores.softmax(-1).to(seen.values.dtype) @ seen.values)

    def scores(self, hidden: Tensor, seen: KeysValues) -> Tensor:
        """How much each query would look at each key, before the softmax (B, H, U, F)."""
        queries = self._by_head(self.q_proj(hidden) * self.scale)
        return (queries @ seen.keys.transpose(2, 3)).float()

    def _together(self, found: Tensor) -> Tensor:
        attended: Tensor = self.out_proj(found.transpose(1, 2).flatten(2))
        return attended

    def _by_head(self, states: Tensor) -> Tensor:
        if self.is_bf16:
            states = states.bfloat16()
        return states.view(*states.shape[:2], self.heads, -1).transpose(1, 2)


class EncoderLayer(nn.Module):
    """Self-attention and two linear layers."""

    def __init__(self, shape: WhisperShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape.width, shape.encoder_heads, shape.attention_dropout)
        self.self_attn_layer_norm = nn.LayerNorm(shape.width)
        self.fc1 = nn.Linear(shape.width, shape.encoder_inner)
        self.fc2 = nn.Linear(shape.encoder_inner, shape.width)
        self.final_layer_norm = nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.activation_dropout = nn.Dropout(shape.activation_dropout)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """The next hidden states (B, F, D)."""
        normed = self.self_attn_layer_norm(hidden)
        hidden = hidden + self.dropout(self.self_attn(normed, self.self_attn.keys_values(normed), mask))
        inner = self.activation_dropout(F.gelu(self.fc1(self.final_layer_norm(hidden))))
        added: Tensor = self.dropout(self.fc2(inner))
        return hidden + added


class DecoderLayer(nn.Module):
    """Self-attention, attention to the encoder's states, and two linear layers."""

    def __init__(self, shape: WhisperShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape.width, shape.decoder_heads, shape.attention_dropout)
        self.self_attn_layer_norm = nn.LayerNorm(shape.width)
        self.encoder_attn = Attention(shape.width, shape.decoder_heads, shape.attention_dropout)
        self.encoder_attn_layer_norm = nn.LayerNorm(shape.width)
        self.fc1 = nn.Linear(shape.width, shape.decoder_inner)
        self.fc2 = nn.Linear(shape.decoder_inner, shape.width)
        self.final_layer_norm = nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.activation_dropout = nn.Dropout(shape.activation_dropout)

    def forward(self, hidden: Tensor, states: Tensor, mask: Tensor | None) -> Tensor:
        """The next hidden states (B, U, D) of whole sequences, beside the encoder's states (B, F, D)."""
        return self.advance(hidden, self.encoder_attn.keys_values(states), mask)

    def advance(self, hidden: Tensor, encoded: KeysValues, mask: Tensor | None, past: AnyPast | None = None) -> Tensor:
        """The next hidden states (R, U, D) after the past; several rows may share encoder states (B, …)."""
        normed = self.self_attn_layer_norm(hidden)
        own = self.self_attn.keys_values(normed)
        written, unwritten = (past.extended(own), past.mask) if past else (own, None)
        if unwritten is not None:
            hidden = hidden + self.self_attn.glance(normed, written, unwritten)
        else:
            hidden = hidden + self.dropout(self.self_attn(normed, written, None, is_causal=hidden.shape[1] > 1))
        # Rows of one utterance look at it together, as if they were tokens of one sequence.
        together = self.encoder_attn_layer_norm(hidden).reshape(len(encoded.keys), -1, hidden.shape[2])
        glances = unwritten is not None and encoded.keys.shape[2] < LONG
        look = self.encoder_attn.glance if glances else self.encoder_attn
        hidden = hidden + self.dropout(look(together, encoded, mask)).view_as(hidden)
        inner = self.activation_dropout(F.gelu(self.fc1(self.final_layer_norm(hidden))))
        added: Tensor = self.dropout(self.fc2(inner))
        return hidden + added


class Stack(nn.Module):
    """Layers that are run as they are or, to save memory, a second time in the backward pass."""

    def __init__(self, saves_memory: bool, plans: bool) -> None:
        super().__init__()
        self.saves_memory = saves_memory
        self.plans = plans  # which kernels attention takes

    def run(self, layer: Callable[..., Tensor], hidden: Tensor, *inputs: Tensor | None) -> Tensor:
        """What a layer makes of the states."""
        kernels = partial(attention_kernels, self.plans, hidden.device)
        found: Tensor = run_layer(
            layer, hidden, *inputs, saves_memory=self.saves_memory and self.training, context=kernels
        )
        return found


class Encoder(Stack):
    """Log-mel energies to states, two frames to one."""

    def __init__(self, shape: WhisperShape, saves_memory: bool, plans: bool) -> None:
        super().__init__(saves_memory, plans)
        self.conv1 = nn.Conv1d(shape.mels, shape.width, 3, padding=1)
        self.conv2 = nn.Conv1d(shape.width, shape.width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(shape.source_positions, shape.width)
        self.embed_positions.requires_grad_(False)
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(shape.encoder_layers))
        self.layer_norm = nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, mels: Tensor, mask: Tensor | None) -> Tensor:
        """The states (B, F / 2, D) of log-mel energies (B, M, F); a mask (B, 1, 1, F / 2) is true for what is seen."""
        (states,) = deque(self.states(mels, mask), maxlen=1)  # no other is kept
        return states

    def states(self, mels: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        """The input of the first layer, each layer's output, and the last one normed in its place."""
        mels = mels.to(self.conv1.weight.dtype)
        # Laid out anew at once: every sum and norm of the layers would otherwise step through memory crosswise.
        hidden = F.gelu(self.conv2(F.gelu(self.conv1(mels)))).transpose(1, 2).contiguous()
        hidden = self.dropout(hidden + self.embed_positions.weight[: hidden.shape[1]])
        for layer in self.layers:
            yield hidden
            hidden = self.run(layer, hidden, mask)
        yield self.layer_norm(hidden)


class Decoder(Stack):
    """Tokens and the encoder's states to what may follow each token."""

    def __init__(self, shape: WhisperShape, saves_memory: bool, plans: bool) -> None:
        super().__init__(saves_memory, plans)
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.embed_positions = nn.Embedding(shape.target_positions, shape.width)
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(shape.decoder_layers))
        self.layer_norm = nn.LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)
        self.output: Int8Linear | None = None  # in int8, the embedding of tokens once more

    def forward(self, tokens: Tensor, states: Tensor, mask: Tensor | None) -> Tensor:
        """Logits (B, U, V) of what follows each of the tokens (B, U)."""
        hidden = self._embed(tokens, slice(tokens.shape[1]))
        for layer in self.layers:
            hidden = self.run(layer, hidden, states, mask)
        return self._logits(hidden)

    def project_encoded(self, states: Tensor) -> list[KeysValues]:
        """What each layer looks at in the encoder's states (B, F, D); it stays the same for all tokens."""
        found = (layer.encoder_attn.keys_values(states) for layer in self._layers())
        # Laid out by head: every step reads all of it.
        return [KeysValues(each.keys.contiguous(), each.values.contiguous()) for each in found]

    def advance(
        self, tokens: Tensor, encoded: Sequence[KeysValues], mask: Tensor | None, past: Sequence[AnyPast]
    ) -> Tensor:
        """Logits (R, V) of what follows the last of the tokens (R, U), after and into the past."""
        hidden = self._embed(tokens, past[0].places)
        for layer, layer_encoded, layer_past in zip(self._layers(), encoded, past, strict=True):
            hidden = layer.advance(hidden, layer_encoded, mask, layer_past)
        return self._logits(hidden[:, -1])

    def trace(self, tokens: Tensor, encoded: Sequence[KeysValues], mask: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Logits (B, U, V) of whole sequences, and each layer's scores of the encoder's states (B, H, U, F)."""
        hidden = self._embed(tokens, slice(tokens.shape[1]))
        scores: list[Tensor] = []

        def note(attention: nn.Module, inputs: tuple[Tensor, KeysValues]) -> None:
            scores.append(cast(Attention, attention).scores(*inputs[:2]))

        for layer, layer_encoded in zip(self._layers(), encoded, strict=True):
            with layer.encoder_attn.register_forward_pre_hook(note):
                hidden = layer.advance(hidden, layer_encoded, mask)
        return self._logits(hidden), scores

    def _layers(self) -> Iterator[DecoderLayer]:
        yield from self.layers  # type: ignore[misc]

    def _embed(self, tokens: Tensor, places: slice | Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.embed_tokens(tokens) + self.embed_positions.weight[places])
        return embedded

    def _logits(self, hidden: Tensor) -> Tensor:
        normed = self.layer_norm(hidden)
        if self.output is not None:
            logits: Tensor = self.output(normed)
            return logits
        # The output layer is the embedding of tokens once more.
        return F.linear(normed, self.embed_tokens.weight)


class EncoderDecoder(nn.Module):
    """Both halves, under the names they have in transformers."""

    def __init__(self, shape: WhisperShape, saves_memory: bool, plans: bool) -> None:
        super().__init__()
        self.encoder = Encoder(shape, saves_memory, plans)
        self.decoder = Decoder(shape, saves_memory, plans)

    def attend_in_bf16(self) -> None:
        """Look at the encoder's states in bf16, in both halves, where all windows are of one size."""
        for layer in self.encoder.layers:
            cast(EncoderLayer, layer).self_attn.is_bf16 = True
        for layer in self.decoder.layers:
            cast(DecoderLayer, layer).encoder_attn.is_bf16 = True


def sinusoids(positions: int, width: int) -> Tensor:
    """The encoder's fixed positions (positions, width): sines, then cosines."""
    rates = torch.exp(-math.log(10_000) / (width // 2 - 1) * torch.arange(width // 2))
    angles = torch.arange(positions)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)

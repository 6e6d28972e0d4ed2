"""The translation head: frames in quarters → transformer layers → a decoder that attends to them, token by token.

Layers normalize their input ("On Layer Normalization in the Transformer Architecture", 2002.04745); positions are
sinusoids. A search steps the decoder with a cache of keys and values for each row.
"""

# B utterances, R rows of a search, F frames, U tokens, D width, H heads, V vocabulary
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.scorers import LogitFilter, ScorerKind
from attune.tasks._precision import as_precise
from attune.types import Batch, Loss

if TYPE_CHECKING:
    from attune.tasks.translate.settings import TranslationHeadConfig

BOUNDARY = 0
TOKENS_AT_LEAST = 16
KeysValues = tuple[Tensor, Tensor]  # (R, H, positions, D / H) each


class SharedAttention(nn.Module):
    """Attention of several heads; what is attended to is projected once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def project(self, frames: Tensor) -> KeysValues:
        """The keys and values of what is attended to."""
        keys, values = self.key_value(frames).unflatten(2, (2 * self.heads, -1)).transpose(1, 2).chunk(2, dim=1)
        return keys, values

    def forward(self, frames: Tensor, attended: KeysValues, mask: Tensor | None) -> Tensor:
        """Frames (B, F, D) with what they attend to; `mask` is True where they may."""
        queries = self.query(frames).unflatten(2, (self.heads, -1)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(queries, *attended, attn_mask=mask)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class TranslationLayer(nn.Module):
    """Attention to itself, in a decoder to the encoder, and a feed-forward network."""

    def __init__(self, settings: TranslationHeadConfig, crosses: bool) -> None:
        super().__init__()
        width = settings.width
        self.own = SharedAttention(width, settings.heads)
        self.cross = SharedAttention(width, settings.heads) if crosses else None
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if crosses else 2))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(
        self,
        frames: Tensor,
        own_mask: Tensor | None,
        encoded: KeysValues | None = None,
        mask: Tensor | None = None,
        past: KeysValues | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Frames after the layer, and the keys and values of all frames so far."""
        normed = self.norms[0](frames)
        attended = self.own.project(normed)
        if past is not None:
            attended = (torch.cat([past[0], attended[0]], dim=2), torch.cat([past[1], attended[1]], dim=2))
        frames = frames + self.dropout(self.own(normed, attended, own_mask))
        if self.cross is not None and encoded is not None:
            frames = frames + self.dropout(self.cross(self.norms[1](frames), encoded, mask))
        widened = self.dropout(self.wide(self.norms[-1](frames)).relu())
        return frames + self.dropout(self.narrow(widened)), attended


class TranslationHead(nn.Module):
    """Text by an attention decoder."""

    scorer_kind: ScorerKind = "tokens"

    def __init__(self, width_in: int, vocabulary: int, settings: TranslationHeadConfig) -> None:
        super().__init__()
        width = settings.width
        self.smoothing = settings.label_smoothing
        self.halves = nn.ModuleList(nn.Conv1d(size, 2 * width, 5, stride=2, padding=2) for size in (width_in, width))
        self.encoder = nn.ModuleList(TranslationLayer(settings, False) for _ in range(settings.encoder_layers))
        self.decoder = nn.ModuleList(TranslationLayer(settings, True) for _ in range(settings.decoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)  # once scaled, as large as the positions
        self.dropout = nn.Dropout(settings.dropout)
        self.output = nn.Linear(width, vocabulary)

    def encode(self, frames: Tensor, lengths: Tensor) -> tuple[list[KeysValues], Tensor]:
        """What each layer of the decoder attends to, and where it may (B, 1, 1, F / 4)."""
        hidden = frames * within(lengths, frames.shape[1])[..., None]
        for half in self.halves:
            lengths = (lengths + 1) // 2
            hidden = F.glu(half(hidden.transpose(1, 2)), dim=1).transpose(1, 2)
            hidden = hidden * within(lengths, hidden.shape[1])[..., None]
        mask = within(lengths, hidden.shape[1])[:, None, None]
        hidden = self.dropout(hidden + _positions(hidden, 0, hidden.shape[1]))
        for layer in self.encoder:
            hidden, _ = layer(hidden, mask)
        encoded = self.encoder_norm(hidden)
        return [layer.cross.project(encoded) for layer in self.decoder], mask  # type: ignore[operator, union-attr]

    def decode(
        self, tokens: Tensor, encoded: Sequence[KeysValues], mask: Tensor, past: Sequence[KeysValues] | None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Logits (R, U, V) of what follows each token, and what the next tokens attend to."""
        begin = past[0][0].shape[2] if past else 0
        size = begin + tokens.shape[1]
        hidden = self.dropout(self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim))
        hidden = hidden + _positions(hidden, begin, size)
        seen = torch.ones(tokens.shape[1], size, dtype=torch.bool, device=tokens.device).tril(begin)
        cache = []
        for number, layer in enumerate(self.decoder):
            hidden, kept = layer(hidden, seen, encoded[number], mask, past[number] if past else None)
            cache.append(kept)
        return self.output(self.decoder_norm(hidden)), cache

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """Cross-entropy of each next token, summed; in training with label smoothing."""
        ids, counts = batch.tokens.ids, batch.tokens.lengths - 1
        encoded, mask = self.encode(frames.to(self.output.weight.dtype), lengths)
        logits, _ = self.decode(ids[:, :-1], encoded, mask, None)
        smoothing = self.smoothing if self.training else 0.0
        wanted = ids[:, 1:]
        # One dimension: of two, CUDA has no loss that gives the same bits each time (train.strict).
        flat = logits.float().flatten(0, 1), wanted.flatten()
        each = F.cross_entropy(*flat, reduction="none", label_smoothing=smoothing).view_as(wanted)
        return Loss((each * within(counts, each.shape[1])).sum(), counts.sum())

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> TranslationScorer:
        """The decoder before its first token."""
        return TranslationScorer(as_precise(self, frames), frames, lengths)


class TranslationScorer:
    """A TokenScorer: the decoder with a cache for each row."""

    def __init__(self, head: TranslationHead, frames: Tensor, lengths: Tensor) -> None:
        self.device = frames.device
        self.end = BOUNDARY
        self.filters: Sequence[LogitFilter] = ()
        self.prefixes = [[BOUNDARY]] * len(lengths)
        self.limits = [max(TOKENS_AT_LEAST, length) for length in lengths.tolist()]
        self.head = head
        self.encoded, self.mask = head.encode(frames, lengths)
        self.past: list[KeysValues] | None = None

    def advance(self, tokens: Tensor) -> Tensor:
        """Feed each row its next tokens (R, n): the log-probabilities (R, V) of what follows them."""
        logits, self.past = self.head.decode(tokens, self.encoded, self.mask, self.past)
        return logits[:, -1].log_softmax(-1).float()

    def select(self, rows: Tensor) -> None:
        """Row i continues from what row `rows[i]` is now."""
        self.encoded = [(keys[rows], values[rows]) for keys, values in self.encoded]
        self.mask = self.mask[rows]
        if self.past is not None:
            self.past = [(keys[rows], values[rows]) for keys, values in self.past]


def _positions(like: Tensor, begin: int, end: int) -> Tensor:
    """Sinusoids (positions, D) of the positions from `begin` to `end`."""
    half = like.shape[2] // 2
    speeds = torch.exp(torch.arange(half, device=like.device, dtype=torch.float64) * (-math.log(10_000) / half))
    angles = torch.arange(begin, end, device=like.device, dtype=torch.float64)[:, None] * speeds
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(like.dtype)

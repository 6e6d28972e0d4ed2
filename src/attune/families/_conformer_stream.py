"""A streaming Conformer chunk by chunk: the same frames as for the whole recording, whatever pieces it comes in.

Rows are streams of their own. What a layer needs of the past is kept: the frames that attention still sees, and those
that its convolution reaches back to.
"""

# B streams, C frames of a chunk, L frames before it, D width, K reach of a convolution
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attune.errors import ModelError
from attune.families._conformer import Conformer, ConformerLayer, chunks_before
from attune.families._own import Own, own_of
from attune.families._positions import relative_sinusoids


@dataclass(frozen=True, slots=True)
class LayerPast:
    """What a layer keeps."""

    seen: Tensor  # (B, L, D) what attention saw, the newest last
    gated: Tensor  # (B, D, K) what the convolution saw


@dataclass(frozen=True, slots=True)
class EncoderPast:
    """What all layers keep, and how many of the frames before are there already."""

    layers: tuple[LayerPast, ...]
    count: Tensor  # (B,)

    @staticmethod
    def together(pasts: Sequence[EncoderPast]) -> EncoderPast:
        """Several streams as the rows of one."""
        layers = tuple(
            LayerPast(torch.cat([each.seen for each in rows]), torch.cat([each.gated for each in rows]))
            for rows in zip(*(past.layers for past in pasts), strict=True)
        )
        return EncoderPast(layers, torch.cat([past.count for past in pasts]))

    def apart(self) -> list[EncoderPast]:
        """Each row as a stream of its own."""
        return [
            EncoderPast(
                tuple(LayerPast(each.seen[row : row + 1], each.gated[row : row + 1]) for each in self.layers),
                self.count[row : row + 1],
            )
            for row in range(len(self.count))
        ]


class ConformerStream:
    """An encoder that is run chunk by chunk."""

    def __init__(self, encoder: Conformer) -> None:
        if encoder.context is None or encoder.look_ahead is None:
            raise ModelError("This encoder needs whole utterances; it cannot stream.")
        if encoder.context.left < 0:
            raise ModelError("This encoder's attention has unlimited left context; it cannot stream.")
        self.encoder = encoder
        self.chunk = encoder.look_ahead + 1  # frames
        self.before = chunks_before(encoder.context.left, encoder.look_ahead) * self.chunk

    def start(self, device: torch.device) -> EncoderPast:
        """One stream before its first frame."""
        width = self.encoder.pre_encode.out.out_features
        layer = LayerPast(
            torch.zeros(1, self.before, width, device=device),
            torch.zeros(1, width, self._layers[0].conv.before, device=device),
        )
        return EncoderPast((layer,) * len(self._layers), torch.zeros(1, dtype=torch.long, device=device))

    def step(self, frames: Tensor, lengths: Tensor, past: EncoderPast) -> tuple[Tensor, EncoderPast]:
        """The next chunk (B, C, D) of subsampled frames to encoded ones; only a last one has fewer (B,) than C."""
        own = own_of(lengths, self.chunk)
        positions = relative_sinusoids(self.before + self.chunk, frames.shape[2], frames.device)
        unseen = self._unseen(own, past.count)
        hidden, kept = frames * self.encoder.scale, []
        for layer, before in zip(self._layers, past.layers, strict=True):
            hidden, after = _run(layer, hidden, positions, own, unseen, before)
            kept.append(after)
        return hidden, EncoderPast(tuple(kept), (past.count + lengths).clamp(max=self.before))

    def _unseen(self, own: Own, count: Tensor) -> Tensor:
        """Padding and what is not there yet (B, 1, C, L + C)."""
        places = torch.arange(self.before, device=count.device)
        missing = (places < (self.before - count)[:, None])[:, None]  # (B, 1, L)
        hidden = torch.cat([missing, own.beyond], 2)[:, None]
        own_places = torch.arange(self.chunk, device=count.device)[:, None] + self.before
        itself = torch.arange(self.before + self.chunk, device=count.device) == own_places  # padding sees something
        return hidden & ~itself

    @property
    def _layers(self) -> list[ConformerLayer]:
        return list(self.encoder.layers)  # type: ignore[arg-type]


def _run(
    layer: ConformerLayer, hidden: Tensor, positions: Tensor, own: Own, unseen: Tensor, past: LayerPast
) -> tuple[Tensor, LayerPast]:
    """One layer on one chunk, as `ConformerLayer.forward` on all of it."""
    hidden = hidden + layer.feed_forward1(layer.norm_feed_forward1(hidden)) * 0.5
    queries = layer.norm_self_att(hidden)
    hidden = hidden + layer.self_attn(queries, positions, unseen, past.seen)
    gated = torch.cat([past.gated, layer.conv.gate(layer.norm_conv(hidden), own)], 2)
    hidden = hidden + layer.conv.convolve(gated, own)
    hidden = hidden + layer.feed_forward2(layer.norm_feed_forward2(hidden)) * 0.5
    seen = torch.cat([past.seen, queries], 1)[:, hidden.shape[1] :]
    return layer.norm_out(hidden), LayerPast(seen, gated[..., hidden.shape[1] :])

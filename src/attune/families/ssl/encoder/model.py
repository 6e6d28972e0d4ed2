"""The whole encoder as an upstream: samples (or filterbank frames) in, all layers out, one after the other."""

# B batch, T samples, F frames, D width
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attune.audio.features import precise_dtype, within
from attune.audio.masking import hidden_parts
from attune.families.ssl.encoder.attention import Places
from attune.families.ssl.encoder.fbank import FRAMES_STACKED, seamless_fbank, stacked_count
from attune.families.ssl.encoder.front_end import ConvFrontEnd
from attune.families.ssl.encoder.layers import ConformerBlock, TransformerLayer
from attune.families.ssl.encoder.positions import ConvPositions, StackedConvPositions
from attune.families.ssl.encoder.shape import EncoderShape
from attune.types import Masks


class FeatureProjection(nn.Module):
    """The front-end's frames in the encoder's width."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(shape.input_width, eps=shape.epsilon) if shape.norms_input else None
        self.projection = nn.Linear(shape.input_width, shape.width)
        self.dropout = nn.Dropout(shape.input_dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Frames (B, F, D)."""
        projected: Tensor = self.dropout(self.projection(self.layer_norm(hidden) if self.layer_norm else hidden))
        return projected


class LayerStack(nn.Module):
    """Positions and layers."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.kind = shape.kind
        self.places = Places(shape)
        self.pos_conv_embed: nn.Module | None = None
        if shape.conv_positions:
            kind = StackedConvPositions if shape.conv_position_layers else ConvPositions
            self.pos_conv_embed = kind(shape)
        # In conformers and where norms come first it belongs to the last layer's output.
        has_norm = shape.kind == "post" or shape.last_norm
        self.layer_norm = nn.LayerNorm(shape.width, eps=shape.epsilon) if has_norm else None
        self.dropout = nn.Dropout(shape.dropout)
        layer = ConformerBlock if shape.kind == "conformer" else TransformerLayer
        self.layers = nn.ModuleList(layer(shape) for _ in range(shape.layers))

    def forward(self, hidden: Tensor, own: Tensor) -> Iterator[Tensor]:
        """The input of the first layer (B, F, D), then each layer's output; only `own` frames (B, F) are seen."""
        beyond = ~own[..., None]
        hidden = hidden.masked_fill(beyond, 0)
        if self.pos_conv_embed is not None:
            hidden = hidden + self.pos_conv_embed(hidden, beyond)
        if self.kind == "post" and self.layer_norm is not None:
            hidden = self.layer_norm(hidden)
        hidden = self.dropout(hidden)
        places, mask = self.places(hidden), own[:, None, None]
        for layer in self.layers:
            yield hidden
            hidden = layer(hidden, mask, places)
        if self.kind != "post" and self.layer_norm is not None:
            hidden = self.layer_norm(hidden)
        yield hidden


class EncoderUpstream(nn.Module):
    """An upstream of the wav2vec 2.0 kind; its weights have the names that `names` gives them."""

    applies_masks = True
    max_seconds: float | None = None
    masked_spec_embed: Tensor

    def __init__(self, shape: EncoderShape, normalizes: bool, least_variance: float = 1e-7) -> None:
        super().__init__()
        self.stride = shape.stride
        self.widths = (shape.width,) * (shape.layers + 1)
        self.normalizes = normalizes
        self.least_variance = least_variance
        self.feature_extractor = ConvFrontEnd(shape) if shape.convs else None
        self.feature_projection = FeatureProjection(shape)
        # Not a parameter: without masks nothing would train it.
        self.register_buffer("masked_spec_embed", torch.rand(shape.width))
        self.encoder = LayerStack(shape)

    def forward(self, audio: Tensor, lengths: Tensor, masks: Masks | None = None) -> tuple[Iterator[Tensor], Tensor]:
        """The layers (B, F, D), computed as they are asked for, and the number of each row's own frames."""
        if self.feature_extractor is not None:
            audio = audio.masked_fill(~within(lengths, audio.shape[1]), 0)
            audio = normalized(audio, lengths, self.least_variance) if self.normalizes else audio
            frames, counts = self.feature_extractor(audio, lengths)
        else:
            frames, counts = seamless_fbank(audio, lengths)
        hidden = self.feature_projection(frames.to(self.feature_projection.projection.weight.dtype))
        if masks is not None:
            times, bins = hidden_parts(hidden, counts, masks)
            hidden = torch.where(times[..., None], self.masked_spec_embed.to(hidden.dtype), hidden)
            hidden = hidden.masked_fill(bins[:, None], 0)
        return self.encoder(hidden, within(counts, hidden.shape[1])), counts

    def frames(self, samples: int) -> int:
        """How many frames come from so many samples."""
        if self.feature_extractor is not None:
            return self.feature_extractor.frames(samples)
        return stacked_count(samples, FRAMES_STACKED)


def normalized(audio: Tensor, lengths: Tensor, least_variance: float) -> Tensor:
    """Zero mean and unit variance over each row's own samples (B, T); zero beyond them."""
    own, counts = within(lengths, audio.shape[1]), lengths[:, None]
    precise = audio.to(precise_dtype(audio.device))
    centered = (precise - precise.sum(1, keepdim=True) / counts).masked_fill(~own, 0)
    variance = centered.square().sum(1, keepdim=True) / counts
    return (centered * (variance + least_variance).rsqrt()).to(audio.dtype)

"""The layers of an encoder: transformer layers with their norms after or before, and conformer layers."""

# B batch, F frames, D width
import torch.nn.functional as F
from torch import Tensor, nn

from attune.families.ssl.encoder.attention import SelfAttention
from attune.families.ssl.encoder.front_end import activation_of
from attune.families.ssl.encoder.shape import EncoderShape


class FeedForwardBlock(nn.Module):
    """Two linear layers."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.intermediate_dense = nn.Linear(shape.width, shape.inner)
        self.output_dense = nn.Linear(shape.inner, shape.width)
        self.activation = activation_of(shape.activation)
        self.intermediate_dropout = nn.Dropout(shape.activation_dropout)
        self.output_dropout = nn.Dropout(shape.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """What is added to the frames (B, F, D)."""
        inner = self.intermediate_dropout(self.activation(self.intermediate_dense(hidden)))
        added: Tensor = self.output_dropout(self.output_dense(inner))
        return added


class TransformerLayer(nn.Module):
    """Attention and two linear layers; each with its norm after what it adds to, or before."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.norms_first = shape.kind == "pre"
        self.attention = SelfAttention(shape)
        self.dropout = nn.Dropout(shape.dropout)
        self.layer_norm = nn.LayerNorm(shape.width, eps=shape.epsilon)
        self.feed_forward = FeedForwardBlock(shape)
        self.final_layer_norm = nn.LayerNorm(shape.width, eps=shape.epsilon)

    def forward(self, hidden: Tensor, mask: Tensor, places: Tensor | None) -> Tensor:
        """The next frames (B, F, D)."""
        if self.norms_first:
            hidden = hidden + self.dropout(self.attention(self.layer_norm(hidden), mask, places))
            added: Tensor = self.feed_forward(self.final_layer_norm(hidden))
            return hidden + added
        hidden = self.layer_norm(hidden + self.dropout(self.attention(hidden, mask, places)))
        normed: Tensor = self.final_layer_norm(hidden + self.feed_forward(hidden))
        return normed


class FixedBatchNorm(nn.BatchNorm1d):
    """A batch norm that keeps the statistics it came with: those of a batch would depend on who is in it."""

    def forward(self, input: Tensor) -> Tensor:
        """Normed channels (B, C, F)."""
        return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


class ConvolutionModule(nn.Module):
    """A gate, a depth-wise convolution and a norm. wav2vec2-BERT's looks back only."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        width, kernel = shape.width, shape.depthwise_kernel
        self.is_causal = shape.causal_conv
        epsilon = shape.epsilon if shape.causal_conv else 1e-5
        self.layer_norm = nn.LayerNorm(width, eps=epsilon)
        self.pointwise_conv1 = nn.Conv1d(width, 2 * width, 1, bias=False)
        self.depthwise_conv = nn.Conv1d(width, width, kernel, groups=width, bias=False)
        self.batch_norm = None if shape.causal_conv else FixedBatchNorm(width)
        self.depthwise_layer_norm = nn.LayerNorm(width, eps=epsilon) if shape.causal_conv else None
        self.activation = activation_of(shape.activation)
        self.pointwise_conv2 = nn.Conv1d(width, width, 1, bias=False)
        self.dropout = nn.Dropout(shape.conv_dropout)

    def forward(self, hidden: Tensor, beyond: Tensor) -> Tensor:
        """What is added to the frames (B, F, D); frames beyond (B, F, 1) are silence to the convolution."""
        hidden = self.layer_norm(hidden).masked_fill(beyond, 0).transpose(1, 2)
        hidden = F.glu(self.pointwise_conv1(hidden), dim=1)
        reach = self.depthwise_conv.kernel_size[0] - 1
        before = reach if self.is_causal else reach // 2
        hidden = self.depthwise_conv(F.pad(hidden, (before, reach - before)))
        if self.depthwise_layer_norm is not None:
            hidden = self.depthwise_layer_norm(hidden.transpose(1, 2)).transpose(1, 2)
        if self.batch_norm is not None:
            hidden = self.batch_norm(hidden)
        added: Tensor = self.dropout(self.pointwise_conv2(self.activation(hidden))).transpose(1, 2)
        return added


class ConformerBlock(nn.Module):
    """Half a feed-forward, attention, convolution, and the other half."""

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        epsilon = shape.epsilon if shape.causal_conv else 1e-5
        self.ffn1_layer_norm = nn.LayerNorm(shape.width, eps=epsilon)
        self.ffn1 = FeedForwardBlock(shape)
        self.self_attn_layer_norm = nn.LayerNorm(shape.width, eps=epsilon)
        self.self_attn = SelfAttention(shape)
        self.dropout = nn.Dropout(shape.attention_dropout)
        self.conv_module = ConvolutionModule(shape)
        self.ffn2_layer_norm = nn.LayerNorm(shape.width, eps=epsilon)
        self.ffn2 = FeedForwardBlock(shape)
        self.final_layer_norm = nn.LayerNorm(shape.width, eps=epsilon)

    def forward(self, hidden: Tensor, mask: Tensor, places: Tensor | None) -> Tensor:
        """The next frames (B, F, D)."""
        hidden = hidden + 0.5 * self.ffn1(self.ffn1_layer_norm(hidden))
        hidden = hidden + self.dropout(self.self_attn(self.self_attn_layer_norm(hidden), mask, places))
        hidden = hidden + self.conv_module(hidden, ~mask[:, 0, 0, :, None])
        normed: Tensor = self.final_layer_norm(hidden + 0.5 * self.ffn2(self.ffn2_layer_norm(hidden)))
        return normed

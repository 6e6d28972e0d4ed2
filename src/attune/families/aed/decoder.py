"""The decoder: a GRU cell that attends to the encoder's frames by content and by where it looked before."""

# U utterances, K rows of each, R = U × K rows, F frames, D width, A width of the attention, C channels
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attune.families.aed.shape import GruDecoderShape


@dataclass(frozen=True, slots=True)
class Attended:
    """The encoder's frames as every step of the decoder needs them, once for all rows of an utterance."""

    frames: Tensor  # (U, F, D)
    projected: Tensor  # (U, F, A)
    beyond: Tensor  # (U, F): what is not the utterance's own
    shifts: Tensor  # (F, F × C): the convolution over where it looked, as a matrix

    def select(self, utterances: Tensor) -> "Attended":
        """The frames of these utterances."""
        return Attended(self.frames[utterances], self.projected[utterances], self.beyond[utterances], self.shifts)


@dataclass(frozen=True, slots=True)
class DecoderState:
    """Where the decoder is, by row."""

    hidden: Tensor  # (R, D)
    context: Tensor  # (R, A)
    attention: Tensor  # (R, F): where it looked in the last step

    def select(self, rows: Tensor) -> "DecoderState":
        """The states of these rows."""
        return DecoderState(self.hidden[rows], self.context[rows], self.attention[rows])


class LocationAttention(nn.Module):
    """Attention by content and by the last attention, as in "Attention-Based Models for Speech Recognition"."""

    def __init__(self, shape: GruDecoderShape, frame_width: int) -> None:
        super().__init__()
        width, reach = shape.attention_width, shape.attention_reach
        self.encoded = nn.Linear(frame_width, width)
        self.state = nn.Linear(shape.width, width)
        self.conv = nn.Conv1d(1, shape.attention_channels, 2 * reach + 1, padding=reach, bias=False)
        self.location = nn.Linear(shape.attention_channels, width)
        self.energy = nn.Linear(width, 1, bias=False)
        self.output = nn.Linear(frame_width, width)

    def attend(self, frames: Tensor, lengths: Tensor) -> Attended:
        """What every step needs of the frames (U, F, D)."""
        beyond = torch.arange(frames.shape[1], device=frames.device) >= lengths[:, None]
        return Attended(frames, self.encoded(frames), beyond, self._shifts(frames.shape[1]))

    def forward(self, attended: Attended, hidden: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """The context (R, A) and where it is from (R, F)."""
        utterances, count = attended.beyond.shape
        channels = (before @ attended.shifts).view(utterances, -1, count, self.conv.out_channels)  # (U, K, F, C)
        inner = self.location(channels)  # (U, K, F, A)
        inner += attended.projected[:, None]
        inner += self.state(hidden).view(utterances, -1, 1, inner.shape[3])
        # tanh(x) = 2 σ(2x) - 1, and the softmax does not see the 1: on a CPU, σ takes a tenth of the time.
        energies = 2 * self.energy(inner.mul_(2).sigmoid_())[..., 0]
        weights = energies.masked_fill(attended.beyond[:, None], -torch.inf).softmax(-1)  # (U, K, F)
        return self.output((weights @ attended.frames).flatten(0, 1)), weights.flatten(0, 1)

    def _shifts(self, frames: int) -> Tensor:
        """The convolution as a matrix (F, F × C): with one channel in, a product is several times as fast."""
        reach = self.conv.kernel_size[0] // 2
        places = torch.arange(frames, device=self.conv.weight.device)
        offsets = places[:, None] - places + reach  # of the frame that is looked at from each
        kernel = self.conv.weight[:, 0].T  # (2 × reach + 1, C)
        taken = kernel[offsets.clamp(0, len(kernel) - 1)]  # (F, F, C)
        return taken.masked_fill(((offsets < 0) | (offsets >= len(kernel)))[..., None], 0).flatten(1)


class GruDecoder(nn.Module):
    """Tokens in, one at a time; what it says about the next one out."""

    def __init__(self, shape: GruDecoderShape, frame_width: int, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, shape.embedding)
        self.cell = nn.GRUCell(shape.embedding + shape.attention_width, shape.width)
        self.attention = LocationAttention(shape, frame_width)
        self.projection = nn.Linear(shape.attention_width + shape.width, shape.width)
        self.output = nn.Linear(shape.width, tokens)
        self.dropout = nn.Dropout(shape.dropout)

    def attend(self, frames: Tensor, lengths: Tensor) -> Attended:
        """What the decoder needs of the encoder's frames (U, F, D)."""
        return self.attention.attend(frames, lengths)

    def start(self, attended: Attended) -> DecoderState:
        """Before the first token, a row of each utterance, it has looked everywhere alike."""
        own = ~attended.beyond
        even = own / own.sum(1, keepdim=True)
        rows, weight = len(own), self.projection.weight
        return DecoderState(
            weight.new_zeros(rows, self.cell.hidden_size),
            weight.new_zeros(rows, self.attention.output.out_features),
            even.to(weight.dtype),
        )

    def step(self, tokens: Tensor, attended: Attended, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits (R, V) of what follows the next tokens (R,), and the new state."""
        inputs = torch.cat([self.embedding(tokens), state.context], 1)
        hidden = self.cell(self.dropout(inputs), state.hidden)
        context, attention = self.attention(attended, hidden, state.attention)
        logits: Tensor = self.output(self.dropout(self.projection(torch.cat([context, hidden], 1))))
        # No gradient flows back through where it looked, as in the models' training.
        return logits, DecoderState(hidden, context, attention.detach())

    def forward(self, tokens: Tensor, attended: Attended) -> Tensor:
        """Logits (R, U, V) of what follows each of the tokens (R, U)."""
        state = self.start(attended)
        outputs = [self.output.weight.new_zeros(len(tokens), 0, self.output.out_features)]
        for place in range(tokens.shape[1]):
            logits, state = self.step(tokens[:, place], attended, state)
            outputs.append(logits[:, None])
        return torch.cat(outputs, 1)

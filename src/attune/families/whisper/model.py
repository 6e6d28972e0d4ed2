"""Whisper as the loop trains it and the search decodes it."""

# B batch, T samples, M mel bins, F encoder frames, U tokens, D width, V vocabulary
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.audio.masking import mask_features
from attune.families.whisper.alignment import align_tokens
from attune.families.whisper.features import HOP, log_mel
from attune.families.whisper.layers import EncoderDecoder, sinusoids
from attune.families.whisper.scorer import DecodingRules, WhisperScorer
from attune.families.whisper.shape import WhisperShape
from attune.families.whisper.windows import (
    FRAMES_PER_SECOND,
    Window,
    Windows,
    attention_kernels,
    own_frames,
    windows_of,
)
from attune.kernels.bf16_attention import has_bf16_products
from attune.kernels.int8 import Int8Linear, int8_copy
from attune.types import SAMPLE_RATE, Batch, Hypothesis, Loss

NOT_LEARNED = -100
PLANNED_WIDTH = 768  # of Whisper small: training anything less is over before planning for each shape has paid


class WhisperModel(nn.Module):
    """The names of its weights are those of transformers' WhisperForConditionalGeneration."""

    def __init__(
        self,
        shape: WhisperShape,
        window: Window,
        rules: DecodingRules,
        saves_memory: bool = False,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.window: Window = window
        self.rules = rules
        self.saves_memory = saves_memory
        self.label_smoothing = label_smoothing
        self.plans = window == "full" or shape.width >= PLANNED_WIDTH
        with torch.device("meta"):
            self.model = EncoderDecoder(shape, saves_memory, self.plans)
        self.model.to_empty(device="cpu")
        self.model.apply(_initialize)
        with torch.no_grad():
            self.model.encoder.embed_positions.weight.copy_(sinusoids(shape.source_positions, shape.width))

    def loss(self, batch: Batch) -> Loss:
        """Cross-entropy, summed over every token after the start of the transcript; the end is one of them."""
        positions = self.shape.target_positions  # padded for a CUDA graph, a batch may have more, all empty
        with attention_kernels(self.plans, batch.audio.device):
            windows, states = self.encode(batch)
            logits = self.model.decoder(batch.tokens.ids[:, :-1][:, :positions], states, windows.mask())
        labels = self.labels(batch)[:, :positions]
        total = F.cross_entropy(
            logits.flatten(0, 1).float(),
            labels.flatten(),
            ignore_index=NOT_LEARNED,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return Loss(total, (labels != NOT_LEARNED).sum())

    def labels(self, batch: Batch) -> Tensor:
        """The next token at each position (B, U - 1), or NOT_LEARNED beyond the own end and before the start."""
        targets = batch.tokens
        has_started = (targets.ids[:, :-1] == self.rules.start).cumsum(1) > 0
        is_own = within(targets.lengths - 1, targets.ids.shape[1] - 1)
        return targets.ids[:, 1:].masked_fill(~(has_started & is_own), NOT_LEARNED)

    def scorer(self, batch: Batch) -> WhisperScorer:
        """What a search can search, after the prefixes that the batch has for targets."""
        with attention_kernels(self.window == "full", batch.audio.device):
            windows, states = self.encode(batch)
        return WhisperScorer(self.model.decoder, self.rules, batch, states, windows)

    def int8(self) -> "WhisperModel":
        """A copy with all products by weights in int8, that of the output layer too, and attention in bf16.

        Windows of different sizes keep fp32 attention: bf16 sums of other sizes are rounded otherwise, and the padding
        of a batch would show.
        """
        quantized = int8_copy(self)
        quantized.model.decoder.output = Int8Linear(self.model.decoder.embed_tokens.weight)
        if self.window == "full" and has_bf16_products():
            quantized.model.attend_in_bf16()
        return quantized

    def align(self, batch: Batch, found: Sequence[Hypothesis]) -> list[Hypothesis]:
        """The hypotheses with the frame at which attention moves to each token, and the token's probability."""
        with torch.inference_mode():
            return align_tokens(self.scorer(batch), self.rules, batch, found)

    def frames(self, samples: int) -> int:
        """How many frames an utterance's own window has."""
        return own_frames(self.window, samples, self.shape.source_positions)

    def graph_samples(self, samples: int) -> int | None:
        """The whole of the window that so many samples need."""
        if self.saves_memory:
            return None  # what is run a second time cannot be recorded
        return self.frames(samples) * SAMPLE_RATE // FRAMES_PER_SECOND

    def encode(self, batch: Batch) -> tuple[Windows, Tensor]:
        """The encoder's states (B, F, D), and which of them are each row's own."""
        windows = windows_of(self.window, batch.lengths, batch.audio.shape[1], self.shape.source_positions)
        mels = log_mel(batch.audio, batch.lengths, self.shape.mels, 2 * windows.width)
        if batch.masks:
            # Of the audio, not of the window: in 30 s, most masks would hide the silence after it.
            own = (-(-batch.lengths // HOP)).clamp(max=mels.shape[2])
            masked = mask_features(mels.transpose(1, 2), own, batch.masks)
            mels = masked.transpose(1, 2)
        return windows, self._states(windows.clear(mels), windows.mask())

    def _states(self, mels: Tensor, mask: Tensor | None) -> Tensor:
        encoder = self.model.encoder
        if self.training or mels.device.type != "cpu" or self.window == "trimmed":
            found: Tensor = encoder(mels, mask)
            return found
        # One by one: what a window's layers make of it stays in the CPU's cache. Only full windows, all of one size:
        # products of other sizes are rounded otherwise, and the padding of a batch would show.
        rows = [slice(row, row + 1) for row in range(len(mels))]
        return torch.cat([encoder(mels[row], None if mask is None else mask[row]) for row in rows])


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding | nn.Conv1d):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear | nn.Conv1d) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.LayerNorm):
        module.reset_parameters()

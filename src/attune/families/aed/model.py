"""An attention encoder-decoder as the loop trains it and the search decodes it."""

# B batch, F frames, U tokens, V vocabulary
import copy
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.audio.masking import mask_features
from attune.families._one_by_one import encode_one_by_one
from attune.families.aed.crdnn import Crdnn
from attune.families.aed.decoder import GruDecoder
from attune.families.aed.front_end import AedFrontEnd
from attune.families.aed.rules import AttentionRules, RuledScorer, rules_of
from attune.families.aed.scorer import AedScorer
from attune.families.aed.settings import AedConfig
from attune.families.aed.shape import AedShape, CrdnnShape, GruDecoderShape
from attune.families.aed.transformer import AttentionEncoder, TransformerDecoder
from attune.kernels.int8 import int8_copy
from attune.types import Batch, CtcScorer, Loss, TokenScorer, TokenTargets


class AedModel(nn.Module):
    """An encoder, a decoder that attends to its frames, and a CTC output on them."""

    def __init__(self, shape: AedShape, config: AedConfig) -> None:
        super().__init__()
        self.shape = shape
        self.label_smoothing, self.ctc_weight = config.label_smoothing, config.ctc_weight
        self.rules = rules_of(config)
        self.ctc_epochs, self.epochs_counted = config.ctc_epochs, config.epochs_counted
        self.front_end = AedFrontEnd(shape, config.normalize)
        self.encoder = _encoder(shape)
        self.decoder = _decoder(shape)
        self.ctc = nn.Linear(shape.encoder.width, shape.tokens).requires_grad_(config.ctc_weight > 0)
        self.epoch = 0
        self.narrow: torch.dtype | None = None  # what the encoder computes in for a search, if not in its own type
        self.is_int8 = False

    def set_epoch(self, epoch: int) -> None:
        """CTC and the counting of statistics depend on the epoch of a step alone."""
        self.epoch = epoch
        self.front_end.norm.follows = epoch < self.epochs_counted

    def loss(self, batch: Batch) -> Loss:
        """Attention and CTC, summed over tokens; the end of each text is one of them."""
        frames, lengths = self.encode(batch)
        counts = batch.tokens.lengths - 1  # of what is predicted: all but the token that begins
        weight = self.ctc_weight if self.ctc_epochs is None or self.epoch < self.ctc_epochs else 0.0
        total = (1 - weight) * self._attention_loss(frames, lengths, batch.tokens)
        if weight:
            total = total + weight * self._ctc_loss(frames, lengths, batch.tokens)
        return Loss(total, counts.sum())

    def scorer(self, batch: Batch) -> TokenScorer:
        """What a search can search, under the rules of the recipe. The encoder may be narrow; scores add up."""
        with torch.autocast(batch.audio.device.type, self.narrow) if self.narrow else nullcontext():
            frames, lengths = encode_one_by_one(self.encode, batch) if self.is_int8 else self.encode(batch)
        frames = frames.to(self.ctc.weight.dtype)
        ctc = CtcScorer(self.ctc(frames).float().log_softmax(-1), lengths)
        plain = AedScorer(self.decoder, frames, ctc, self.shape.begin, self.shape.end)
        return plain if self.rules == AttentionRules() else RuledScorer(plain, self.rules)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The encoder's frames (B, F, D), and how many of them are each row's own."""
        mels, counts = self.front_end(batch.audio, batch.lengths)
        if batch.masks:
            mels = mask_features(mels, counts, batch.masks)
        encoded: tuple[Tensor, Tensor] = self.encoder(mels, counts)
        return encoded

    def half_precision(self, dtype: torch.dtype) -> "AedModel":
        """The same model, whose encoder computes in `dtype` for a search: features and norms are too wide for that."""
        narrow = copy.copy(self)
        narrow.narrow = dtype
        return narrow

    def int8(self) -> "AedModel":
        """A copy whose encoder computes in int8; the decoder, whose scores add up, is as it was."""
        quantized = int8_copy(self, self.encoder)
        quantized.is_int8 = True
        return quantized

    def frames(self, samples: int) -> int:
        """How many frames the decoder attends to."""
        return self.encoder.frames(self.front_end.frames(samples))

    def graph_samples(self, samples: int) -> int | None:
        """None: LSTM layers look at the lengths."""
        return None

    def _attention_loss(self, frames: Tensor, lengths: Tensor, targets: TokenTargets) -> Tensor:
        logits = self.decoder(targets.ids[:, :-1], self.decoder.attend(frames, lengths)).float()
        is_own = within(targets.lengths - 1, logits.shape[1])
        each = F.cross_entropy(
            logits.flatten(0, 1), targets.ids[:, 1:].flatten(), reduction="none", label_smoothing=self.label_smoothing
        )
        return each.masked_fill(~is_own.flatten(), 0).sum()

    def _ctc_loss(self, frames: Tensor, lengths: Tensor, targets: TokenTargets) -> Tensor:
        log_probs = self.ctc(frames).float().log_softmax(-1)
        # On the CPU, because CUDA adds up the gradient of CTC in a new order every time: other bits after each resume.
        total = F.ctc_loss(
            log_probs.transpose(0, 1).cpu(),
            targets.ids[:, 1:].cpu(),
            lengths.cpu(),
            (targets.lengths - 2).cpu(),
            reduction="sum",
            zero_infinity=True,  # a text may have more tokens than the utterance has frames
        )
        return total.to(frames.device)


def _encoder(shape: AedShape) -> Crdnn | AttentionEncoder:
    encoder = shape.encoder
    return Crdnn(encoder, shape.mels) if isinstance(encoder, CrdnnShape) else AttentionEncoder(encoder, shape.mels)


def _decoder(shape: AedShape) -> GruDecoder | TransformerDecoder:
    decoder, width = shape.decoder, shape.encoder.width
    kind = GruDecoder if isinstance(decoder, GruDecoderShape) else TransformerDecoder
    return kind(decoder, width, shape.tokens)  # type: ignore[arg-type]  # its own

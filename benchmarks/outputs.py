"""A task for phrases.py: text by a transducer's or an attention model's output on a frozen encoder.

The parts are those of the families `transducer` (stateless prediction net, joint, loss) and `aed` (GRU decoder with
location-aware attention, and CTC beside it), so that searches can be compared on one encoder.
"""

# B batch, F frames, D width
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from attune.audio.features import within
from attune.contracts import Head
from attune.families.aed.decoder import GruDecoder
from attune.families.aed.scorer import AedScorer
from attune.families.aed.shape import GruDecoderShape
from attune.families.transducer.joint import Joint
from attune.families.transducer.prediction import StatelessNet
from attune.families.transducer.scorer import ModelScorer
from attune.families.transducer.shape import JointShape, PredictionShape
from attune.kernels.transducer import Lattice, transducer_loss
from attune.scorers import ScorerKind
from attune.tasks._precision import as_precise
from attune.tasks.transcribe import Transcribe, TranscribeConfig
from attune.tasks.transcribe.head import CtcHead
from attune.types import Batch, CtcScorer, Hypothesis, Loss, Output, Utterance, require_hypothesis

END = 0  # of a text, and its beginning; where CTC has its blank
CTC_WEIGHT = 0.5
JOINED = 128  # width of a transducer's joint


@dataclass(frozen=True, slots=True)
class WrittenConfig(TranscribeConfig):
    """As of the task transcribe, and which output there is."""

    output: Annotated[Literal["transducer", "attention"], Field(description="Kind of output.")] = "transducer"


class Written(Transcribe):
    """Text by the output that the config names."""

    Config: ClassVar[type[TranscribeConfig]] = WrittenConfig
    config: WrittenConfig

    @property
    def has_end(self) -> bool:
        """Whether a text has a token that begins and ends it."""
        return self.config.output == "attention"

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The tokens, of attention models with the one that begins and ends them."""
        tokens = super().target(utterance)
        return (END, *tokens, END) if self.has_end else tokens

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """The token that begins."""
        return (END,) if self.has_end else ()

    def frames_needed(self, target: object) -> int:
        """One."""
        return 1

    def read(self, output: Output) -> str:
        """The text of a hypothesis."""
        return super().read(Hypothesis(tuple(each for each in require_hypothesis(output).tokens if each != END), 0.0))

    def head(self, width: int, stride: int) -> Head:  # type: ignore[override]
        """LSTM layers and the output."""
        head, size = self.config.head, self.tokenizer.size
        encoder = CtcHead(width, head.width, head.layers, head.width, head.dropout)
        kind = AttentionHead if self.has_end else TransducerHead
        return kind(encoder, head.width, size, head.dropout)


class TransducerHead(nn.Module):
    """A transducer over characters, whose blank is the last token."""

    scorer_kind: ScorerKind = "transducer"

    def __init__(self, encoder: CtcHead, width: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.prediction = StatelessNet(vocabulary, 2, PredictionShape(JOINED, 0, 2, True, dropout))
        self.joint = Joint(width, JOINED, vocabulary + 1, JointShape(JOINED, "relu", dropout))
        self.lattice = Lattice(vocabulary)

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """The negative log-likelihood of the texts, summed."""
        targets, output = batch.tokens, self.joint.output
        encoded = self.encoder(frames.to(output.weight.dtype), lengths)
        sides = self.joint.project(encoded, self.prediction(targets.ids))
        each = transducer_loss(
            *sides, output.weight, output.bias, targets.ids, lengths, targets.lengths, self.lattice
        )  # fmt: skip
        return Loss(each.sum(), targets.lengths.clamp(min=1).sum())

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> ModelScorer:
        """What a search can search."""
        head = as_precise(self, frames)
        return ModelScorer(head.prediction, head.joint, head.encoder(frames, lengths), lengths, head.lattice)


class AttentionHead(nn.Module):
    """A GRU decoder that attends to the frames, and CTC beside it."""

    scorer_kind: ScorerKind = "tokens"

    def __init__(self, encoder: CtcHead, width: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        shape = GruDecoderShape(
            embedding=64, width=width, attention_width=width // 2, attention_reach=25, dropout=dropout
        )
        self.decoder = GruDecoder(shape, width, vocabulary)
        self.ctc = nn.Linear(width, vocabulary)

    def loss(self, frames: Tensor, lengths: Tensor, batch: Batch) -> Loss:
        """Attention and CTC, summed over tokens."""
        targets = batch.tokens
        encoded = self.encoder(frames.to(self.ctc.weight.dtype), lengths).relu()
        counts = targets.lengths - 1
        logits = self.decoder(targets.ids[:, :-1], self.decoder.attend(encoded, lengths)).float()
        each = F.cross_entropy(logits.flatten(0, 1), targets.ids[:, 1:].flatten(), reduction="none")
        attention = each.masked_fill(~within(counts, logits.shape[1]).flatten(), 0).sum()
        by_frame = self.ctc(encoded).float().log_softmax(-1).transpose(0, 1)
        ctc = F.ctc_loss(by_frame, targets.ids[:, 1:], lengths, counts - 1, reduction="sum", zero_infinity=True)
        return Loss((1 - CTC_WEIGHT) * attention + CTC_WEIGHT * ctc, counts.sum())

    def scorer(self, frames: Tensor, lengths: Tensor, batch: Batch) -> AedScorer:
        """The decoder before its first token."""
        head = as_precise(self, frames)
        encoded = head.encoder(frames, lengths).relu()
        ctc = CtcScorer(head.ctc(encoded).float().log_softmax(-1), lengths)
        return AedScorer(head.decoder, encoded, ctc, END, END)


TASK = Written

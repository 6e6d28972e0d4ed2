"""A language model as the loop trains it; the text is what is learned, and in decoding what is scored."""

# B batch, U tokens, V vocabulary
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor, nn

from attune.audio.features import within
from attune.contracts import Task, TaskModel, TextTask
from attune.errors import ConfigError, ModelError
from attune.families._pieces import OwnPieces, with_end
from attune.families._speechbrain import TOKENIZER
from attune.families.lm.model import FusedLm, LmShape, RecurrentLm
from attune.families.lm.settings import LmConfig
from attune.families.lm.speechbrain import read_shape
from attune.families.lm.transformer import TransformerLm, TransformerLmShape
from attune.scorers import LikelihoodScorer
from attune.types import Batch, Json, Loss, Output, Target, Utterance, target_text, tokens_of

RNN_SIZES = {
    "librispeech": LmShape(tokens=1),
    "small": LmShape(tokens=1, embedding=256, rnn_width=512, dnn_width=256),
    "tiny": LmShape(tokens=1, embedding=32, rnn_layers=1, rnn_width=64, dnn_width=32),
}
TRANSFORMER_SIZES = {
    "librispeech": TransformerLmShape(tokens=1),
    "small": TransformerLmShape(tokens=1, width=256, heads=4, layers=6, feed_forward=1024),
    "tiny": TransformerLmShape(tokens=1, width=64, heads=4, layers=2, feed_forward=128),
}


@dataclass(frozen=True, slots=True)
class LmCodec:
    """Texts as tokens, with the end after them; in decoding the text is the prompt."""

    task: Task
    pieces: Sequence[str]
    encode: Callable[[Utterance], Target]
    end: int = 0

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The tokens of the text and its end."""
        return (*tokens_of(self.encode(utterance)), self.end)

    def frames_needed(self, target: Target) -> int:
        """None: there is no audio."""
        return 0

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """The text whose probability is asked for."""
        return self.target(utterance)

    def read(self, output: Output) -> Json:
        """As the task reads it."""
        return self.task.read(output)

    def join(self, values: Sequence[Json], whole: Utterance) -> Json:
        """Never: text is not cut."""
        raise ModelError("data.long_rows is for audio; this task has texts. Remove it.")

    def describe(self, target: Target) -> str:
        """Token ids."""
        return target_text(target)


class LanguageModelNet(nn.Module):
    """A SpeechModel without speech: the loss of a text is its negative log-probability."""

    def __init__(self, net: RecurrentLm | TransformerLm) -> None:
        super().__init__()
        self.net = net

    def loss(self, batch: Batch) -> Loss:
        """Summed over tokens, ends included."""
        return Loss(self._losses(batch).sum(), batch.tokens.lengths.sum())

    def scorer(self, batch: Batch) -> LikelihoodScorer:
        """How probable each text is."""
        return LikelihoodScorer(-self._losses(batch), batch.tokens.lengths)

    def language_model(self, first: int) -> FusedLm:
        """What a beam search fuses."""
        return FusedLm(self.net, first)

    def frames(self, samples: int) -> int:
        """None."""
        return 0

    def graph_samples(self, samples: int) -> int | None:
        """None: there are no samples."""
        return None

    def _losses(self, batch: Batch) -> Tensor:
        ids, lengths = batch.tokens.ids, batch.tokens.lengths
        logits, _ = self.net(F.pad(ids[:, :-1], (1, 0), value=self.net.shape.begin))
        # One dimension: of two, CUDA has no loss that gives the same bits each time (train.strict).
        each = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten(), reduction="none").view_as(ids)
        return (each * within(lengths, ids.shape[1])).sum(1)


def build_lm(config: LmConfig, task: Task) -> TaskModel:
    """A model of the config's size over the task's tokens."""
    pieces = task.pieces  # type: ignore[attr-defined]
    net = LanguageModelNet(_net(config, len(pieces)))
    return TaskModel(net, LmCodec(task, pieces, task.target), "likelihood")


def _net(config: LmConfig, tokens: int) -> RecurrentLm | TransformerLm:
    if config.kind == "rnn":
        return RecurrentLm(replace(RNN_SIZES[config.size], tokens=tokens, dropout=config.dropout))
    return TransformerLm(replace(TRANSFORMER_SIZES[config.size], tokens=tokens, dropout=config.dropout))


def build_own(config: LmConfig, task: Task, assets: Path) -> TaskModel:
    """An imported model over its own tokens."""
    shape = read_shape(assets)
    if shape is None or not isinstance(task, TextTask):
        raise ConfigError("These weights have no tokens of their own. Set model.tokens=task.")
    own, text = OwnPieces(assets / TOKENIZER), task.text

    def encode(utterance: Utterance) -> tuple[int, ...]:
        # SpeechBrain has its unknown token at 0, where the end may be, too
        return tuple(token for token in own.encode(text(utterance)) if token != shape.end)

    net = LanguageModelNet(_net_of(replace(shape, dropout=config.dropout)))
    return TaskModel(net, LmCodec(task, with_end(own.pieces, shape.end), encode, shape.end), "likelihood")


def _net_of(shape: LmShape | TransformerLmShape) -> RecurrentLm | TransformerLm:
    return RecurrentLm(shape) if isinstance(shape, LmShape) else TransformerLm(shape)

"""What the tokens stand for: SpeechBrain's own SentencePiece model, or the task's. Token 0 begins and ends a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attune.contracts import Task, TextTask, TokenizedTask, join_values
from attune.errors import ConfigError
from attune.families._pieces import OwnPieces
from attune.families._speechbrain import TOKENIZER
from attune.text.timestamps import strip_timestamps
from attune.types import Hypothesis, Json, Output, Target, Utterance, require_hypothesis, target_text

END = 0


@dataclass(frozen=True, slots=True)
class AedCodec:
    """Utterances to tokens, and tokens to text."""

    pieces: tuple[str, ...]
    encode: Callable[[Utterance], tuple[int, ...]]
    decode: Callable[[tuple[int, ...]], str]

    def target(self, utterance: Utterance) -> tuple[int, ...]:
        """The tokens to learn, from the one that begins to the one that ends."""
        return (END, *self.encode(utterance), END)

    def frames_needed(self, target: Target) -> int:
        """None in particular: attention may stay where it is."""
        return 0

    def prompt(self, utterance: Utterance) -> tuple[int, ...]:
        """The token that begins."""
        return (END,)

    def read(self, output: Output) -> str:
        """The text of a hypothesis."""
        return self.decode(require_hypothesis(output).tokens)

    def join(self, values: Sequence[Json], whole: Utterance) -> str:
        """Texts with a space between them."""
        return join_values(values)

    def describe(self, target: Target) -> str:
        """Token ids."""
        return target_text(target)


def own_codec(assets: Path, task: Task) -> AedCodec:
    """The tokens that came with the weights, for the task's text."""
    if not isinstance(task, TextTask):
        raise ConfigError("An attention encoder-decoder needs text; this task has none. Set task.name=transcribe.")
    if not (assets / TOKENIZER).is_file():
        raise ConfigError("These weights were trained with their task's tokens. Set model.tokens=task.")
    own, text, language = OwnPieces(assets / TOKENIZER), task.text, task.language

    def encode(utterance: Utterance) -> tuple[int, ...]:
        ids = own.encode(strip_timestamps(text(utterance), utterance.language or language))
        return tuple(token for token in ids if token != END)  # SpeechBrain has its unknown token there too

    return AedCodec(own.pieces, encode, own.decode)


def task_codec(task: Task) -> AedCodec:
    """The tokens that the task learned from its text; its blank is token 0 too."""
    if not isinstance(task, TokenizedTask):
        raise ConfigError("An attention encoder-decoder needs text; this task has none. Set task.name=transcribe.")
    target, read = task.target, task.read
    return AedCodec(task.pieces, target, lambda tokens: read(Hypothesis(tokens, 0.0)))

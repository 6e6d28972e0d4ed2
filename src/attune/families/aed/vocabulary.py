"""What the tokens stand for: SpeechBrain's own SentencePiece model, or the task's. Token 0 begins and ends a text."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from attune.contracts import Task, TextTask, TokenizedTask
from attune.errors import ConfigError
from attune.families._pieces import OwnPieces, PieceCodec
from attune.families._speechbrain import TOKENIZER
from attune.text.timestamps import strip_timestamps
from attune.types import Hypothesis, Utterance

END = 0


def own_codec(assets: Path, task: Task) -> PieceCodec:
    """The tokens that came with the weights, for the task's text."""
    if not isinstance(task, TextTask):
        raise ConfigError("An attention encoder-decoder needs text; this task has none. Set task.name=transcribe.")
    if not (assets / TOKENIZER).is_file():
        raise ConfigError("These weights were trained with their task's tokens. Set model.tokens=task.")
    own, text, language = OwnPieces(assets / TOKENIZER), task.text, task.language

    def encode(utterance: Utterance) -> tuple[int, ...]:
        ids = own.encode(strip_timestamps(text(utterance), utterance.language or language))
        return _ended(token for token in ids if token != END)  # SpeechBrain has its unknown token there too

    return PieceCodec(_with_end(own.pieces), encode, own.decode, (END,))


def task_codec(task: Task) -> PieceCodec:
    """The tokens that the task learned from its text; its blank is token 0 too."""
    if not isinstance(task, TokenizedTask):
        raise ConfigError("An attention encoder-decoder needs text; this task has none. Set task.name=transcribe.")
    target, read = task.target, task.read
    return PieceCodec(
        _with_end(task.pieces),
        lambda utterance: _ended(target(utterance)),
        lambda tokens: read(Hypothesis(tokens, 0.0)),
        (END,),
    )


def _with_end(pieces: Sequence[str]) -> tuple[str, ...]:
    """How tokens are written: the first as the end, for language models."""
    return ("</s>", *pieces[1:])


def _ended(tokens: Iterable[int]) -> tuple[int, ...]:
    """From the token that begins to the one that ends."""
    return (END, *tokens, END)

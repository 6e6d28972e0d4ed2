"""What the tokens stand for: SpeechBrain's own SentencePiece model, or the task's; one begins a text, one ends it."""

from pathlib import Path

from attune.contracts import Task, TextTask, TokenizedTask
from attune.errors import ConfigError
from attune.families._pieces import OwnPieces, PieceCodec, with_end
from attune.families._speechbrain import TOKENIZER
from attune.text.timestamps import strip_timestamps
from attune.types import Hypothesis, Utterance

END = 0  # of a task's tokens


def own_codec(assets: Path, task: Task, begin: int, end: int) -> PieceCodec:
    """The tokens that came with the weights, for the task's text."""
    if not isinstance(task, TextTask):
        raise ConfigError("An attention encoder-decoder needs text; this task has none. Set task.name=transcribe.")
    if not (assets / TOKENIZER).is_file():
        raise ConfigError("These weights were trained with their task's tokens. Set model.tokens=task.")
    own, text, language = OwnPieces(assets / TOKENIZER), task.text, task.language

    def encode(utterance: Utterance) -> tuple[int, ...]:
        ids = own.encode(strip_timestamps(text(utterance), utterance.language or language))
        return (begin, *(token for token in ids if token != end), end)  # SpeechBrain's unknown token may be there too

    return PieceCodec(with_end(own.pieces, end), encode, own.decode, (begin,))


def task_codec(task: Task) -> PieceCodec:
    """The tokens that the task learned from its text; its blank is token 0 too."""
    if not isinstance(task, TokenizedTask):
        raise ConfigError("An attention encoder-decoder needs text; this task has none. Set task.name=transcribe.")
    target, read = task.target, task.read
    return PieceCodec(
        with_end(task.pieces, END),
        lambda utterance: (END, *target(utterance), END),
        lambda tokens: read(Hypothesis(tokens, 0.0)),
        (END,),
    )

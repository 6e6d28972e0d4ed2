"""What a transducer's labels stand for: the pieces of its own SentencePiece model, or the task's tokens.

Labels are numbered from 0, and the blank comes after the last. The task's tokens have their blank first, so a label is
the task's token less one.
"""

from pathlib import Path

from attune.contracts import Task, TextTask, TokenizedTask
from attune.errors import ConfigError, ModelError
from attune.families._pieces import OwnPieces, PieceCodec
from attune.families.transducer.archive import CONFIG, tokenizer_files
from attune.plain_yaml import Plain, read_data
from attune.text import tokenizers
from attune.text.timestamps import strip_timestamps
from attune.text.tokenizers.sentencepiece import SentencePieceTokenizer
from attune.types import Hypothesis


def own_codec(assets: Path, task: Task) -> PieceCodec:
    """The tokens that came with the weights, for the task's text."""
    if not isinstance(task, TextTask):
        raise ConfigError("A transducer needs text; this task has none. Set task.name=transcribe.")
    pieces, text, language = own_pieces(assets), task.text, task.language
    return PieceCodec(
        pieces.pieces,
        lambda utterance: pieces.encode(strip_timestamps(text(utterance), utterance.language or language)),
        pieces.decode,
    )


def task_codec(task: Task) -> PieceCodec:
    """The tokens that the task learned from its text."""
    if not isinstance(task, TokenizedTask):
        raise ConfigError("A transducer needs text; this task has none. Set task.name=transcribe.")
    target, read = task.target, task.read
    return PieceCodec(
        task.pieces[1:],
        lambda utterance: tuple(token - 1 for token in target(utterance)),
        lambda labels: read(Hypothesis(tuple(label + 1 for label in labels), 0.0)),
    )


def own_pieces(assets: Path) -> OwnPieces:
    """The SentencePiece model among the files of a `.nemo` archive."""
    config = read_config(assets)
    name = tokenizer_files(config).get("model_path") if config else None
    if not name:
        raise ConfigError("These weights have no tokens of their own. Set model.tokens=task.")
    return OwnPieces(assets / name)


def pieces_of(task: Path, assets: Path) -> tuple[str, ...]:
    """How the labels of a pretrained model are written, whose files are in these folders."""
    if task.is_dir() and any(task.iterdir()):
        return tokenizers.load(task).pieces[1:]
    return own_pieces(assets).pieces


def sentencepiece_of(task: Path, assets: Path) -> bytes:
    """The SentencePiece model of a model whose files are in these folders, numbered as its labels are."""
    if not (task.is_dir() and any(task.iterdir())):
        return own_pieces(assets).path.read_bytes()
    tokenizer = tokenizers.load(task)
    if not isinstance(tokenizer, SentencePieceTokenizer):
        raise ModelError(
            "The tokens are characters; transformers needs SentencePiece tokens. Train with task.tokens=bpe."
        )
    return tokenizer.without_blank()


def read_config(assets: Path) -> dict[str, Plain] | None:
    """The configuration that came with the weights, if one did."""
    path = assets / CONFIG
    config = read_data(path.read_text(encoding="utf-8"), str(path)) if path.is_file() else None
    return config if isinstance(config, dict) else None

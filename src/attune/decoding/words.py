"""Words with timestamps, from a hypothesis whose tokens have frames."""

from collections.abc import Iterator
from itertools import pairwise

from attune.contracts import FrameTimes, TaskModel
from attune.types import Hypothesis, Word, require_text

WORD_BEGINS = "▁"  # as SentencePiece writes it


def words_of(hypothesis: Hypothesis, task_model: TaskModel, offset: float = 0.0) -> tuple[Word, ...]:
    """Each word with the time of its first token and the lowest confidence of its tokens.

    Empty for a family without pieces or seconds per frame; `offset` is where the audio begins, in seconds.
    """
    if not isinstance(task_model.times, FrameTimes) or not task_model.codec.pieces:
        return ()
    words = []
    for first, last in _bounds(hypothesis.tokens, task_model):
        text = require_text(task_model.codec.read(Hypothesis(hypothesis.tokens[first:last], 0.0)))
        start = offset + hypothesis.frames[first] * task_model.times.seconds_per_frame
        words.append(Word(text, round(start, 3), round(min(hypothesis.confidences[first:last]), 4)))
    return tuple(words)


def _bounds(tokens: tuple[int, ...], task_model: TaskModel) -> Iterator[tuple[int, int]]:
    """Where words begin and end; the first token begins one in any case, and a space alone is part of none."""
    pieces = [task_model.codec.pieces[token] for token in tokens]
    begins = [place for place, piece in enumerate(pieces) if piece.startswith(WORD_BEGINS) or place == 0]
    for begin, last in pairwise([*begins, len(pieces)]):
        first = begin + (pieces[begin] == WORD_BEGINS)
        if first < last:
            yield first, last

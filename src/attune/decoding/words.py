"""Words with their times, from a hypothesis whose tokens have frames."""

from collections.abc import Iterator
from itertools import pairwise

from attune.contracts import FrameTimes, TaskModel
from attune.types import Hypothesis, Word

WORD_BEGINS = "▁"  # as SentencePiece writes it


def words_of(hypothesis: Hypothesis, built: TaskModel, offset: float = 0.0) -> tuple[Word, ...]:
    """Each word, when its first token was said, and the probability of its least certain one.

    Only of a family that tells its pieces and how long a frame is; `offset` is where the audio begins, in seconds.
    """
    if not built.codec.pieces or not isinstance(built.times, FrameTimes):
        return ()
    words = []
    for first, last in _bounds(hypothesis.tokens, built):
        text = built.codec.read(Hypothesis(hypothesis.tokens[first:last], 0.0))
        start = offset + hypothesis.frames[first] * built.times.seconds_per_frame
        words.append(Word(text, round(start, 3), round(min(hypothesis.confidences[first:last]), 4)))
    return tuple(words)


def _bounds(tokens: tuple[int, ...], built: TaskModel) -> Iterator[tuple[int, int]]:
    """Where words begin and end; the first token begins one in any case, and a space alone is part of none."""
    pieces = [built.codec.pieces[token] for token in tokens]
    begins = [place for place, piece in enumerate(pieces) if piece.startswith(WORD_BEGINS) or place == 0]
    for begin, last in pairwise([*begins, len(pieces)]):
        first = begin + (pieces[begin] == WORD_BEGINS)
        if first < last:
            yield first, last

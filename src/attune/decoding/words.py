"""Words with timestamps, from a hypothesis whose tokens have frames."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attune.contracts import FrameTimes, TaskModel
from attune.types import Hypothesis, Word, require_text

WORD_BEGINS = ("▁", "Ġ")  # as SentencePiece and byte-level BPE write a space


def words_of(hypothesis: Hypothesis, task_model: TaskModel, offset: float = 0.0) -> tuple[Word, ...]:
    """Each word with the time of its first token and the lowest confidence of its tokens.

    Empty without pieces, seconds per frame, or frames of the tokens; `offset` is where the audio begins, in seconds.
    """
    pieces = task_model.codec.pieces if hypothesis.frames else ()
    if not isinstance(task_model.times, FrameTimes) or not pieces:
        return ()
    words = []
    # A token beyond the pieces is a special one, which is not written.
    for first, last in _bounds([pieces[token] if token < len(pieces) else "" for token in hypothesis.tokens]):
        text = require_text(task_model.codec.read(Hypothesis(hypothesis.tokens[first:last], 0.0)))
        start = offset + hypothesis.frames[first] * task_model.times.seconds_per_frame
        if text:
            words.append(Word(text, round(start, 3), round(min(hypothesis.confidences[first:last]), 4)))
    return tuple(words)


def _bounds(pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where words begin and end; the first token begins one in any case, and a space alone is part of none."""
    begins = [place for place, piece in enumerate(pieces) if piece.startswith(WORD_BEGINS) or place == 0]
    for begin, last in pairwise([*begins, len(pieces)]):
        first = begin + (pieces[begin] in WORD_BEGINS)
        if first < last:
            yield first, last

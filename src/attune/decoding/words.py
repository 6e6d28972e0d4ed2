"""Words with timestamps, from a hypothesis whose tokens have frames."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attune.contracts import FrameTimes, TaskModel
from attune.types import Hypothesis, Word, require_text

WORD_BEGINS = ("▁", "Ġ")  # as SentencePiece and byte-level BPE write a space
LONGEST_TOKEN = 0.4  # seconds, where nothing but the next token shows when one ends


def words_of(hypothesis: Hypothesis, task_model: TaskModel, offset: float = 0.0) -> tuple[Word, ...]:
    """Each word from its first token to the end of its last, with the lowest confidence of its tokens.

    Empty without pieces, seconds per frame, or frames of the tokens; `offset` is where the audio begins, in seconds.
    """
    pieces = task_model.codec.pieces if hypothesis.frames else ()
    if not isinstance(task_model.times, FrameTimes) or not pieces:
        return ()
    words, step = [], task_model.times.seconds_per_frame
    ends = token_ends(hypothesis, step)
    # A token beyond the pieces is a special one, which is not written.
    for first, last in word_bounds([pieces[token] if token < len(pieces) else "" for token in hypothesis.tokens]):
        text = require_text(task_model.codec.read(Hypothesis(hypothesis.tokens[first:last], 0.0)))
        start, end = offset + hypothesis.frames[first] * step, offset + ends[last - 1] * step
        if text:
            confidence = min(hypothesis.confidences[first:last])
            words.append(Word(text, round(start, 3), round(end, 3), round(confidence, 4)))
    return tuple(words)


def token_ends(hypothesis: Hypothesis, seconds_per_frame: float) -> Sequence[float]:
    """The frame up to which each token lasts: where the search knows none, up to the next token, but not for long."""
    if hypothesis.ends:
        return hypothesis.ends
    longest = max(1, round(LONGEST_TOKEN / seconds_per_frame))
    following = [*hypothesis.frames[1:], hypothesis.frames[-1] + longest] if hypothesis.frames else []
    return [min(max(later, own + 1), own + longest) for own, later in zip(hypothesis.frames, following, strict=True)]


def word_bounds(pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where words begin and end; the first token begins one in any case, and a space alone is part of none."""
    begins = [place for place, piece in enumerate(pieces) if piece.startswith(WORD_BEGINS) or place == 0]
    for begin, last in pairwise([*begins, len(pieces)]):
        first = begin + (pieces[begin] in WORD_BEGINS)
        if first < last:
            yield first, last

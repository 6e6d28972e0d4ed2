"""Long recordings cut into rows for training: at pauses between aligned words, no row longer than a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from attune.audio.vad import Span
from attune.types import Word

MARGIN = 0.2  # seconds of a pause that stay with a row
LONGEST_PAUSE = 2.0  # seconds, inside a row


@dataclass(frozen=True, slots=True)
class WordSpan:
    """The words of a row, from `first` up to `last`, and its audio in seconds of the recording."""

    first: int
    last: int
    start: float
    end: float


def cut_at_pauses(
    words: Sequence[Word],
    seconds: float,
    longest: float,
    foreign: Sequence[Span] = (),
    longest_pause: float = LONGEST_PAUSE,
) -> list[WordSpan]:
    """The words of a recording of so many seconds as rows; none has `foreign` speech or a longer pause inside.

    A full row ends at the longest pause of its later half.
    """
    rows: list[WordSpan] = []
    for first, last in _stretches(words, foreign, longest_pause):
        place = first
        while place < last:
            after = _end_of_row(words, place, last, longest)
            rows.append(_span(words, place, after, seconds, foreign))
            place = after
    return rows


def _stretches(words: Sequence[Word], foreign: Sequence[Span], longest_pause: float) -> Iterator[tuple[int, int]]:
    """Words that may be in one row, however long it would be."""
    first = 0
    for place, (left, right) in enumerate(pairwise(words), 1):
        is_foreign = any(left.end <= each.end and each.start <= right.start for each in foreign)
        if is_foreign or right.start - left.end > longest_pause:
            yield first, place
            first = place
    if words:
        yield first, len(words)


def _end_of_row(words: Sequence[Word], first: int, last: int, longest: float) -> int:
    room = longest - 2 * MARGIN
    after = first + 1
    while after < last and words[after].end - words[first].start <= room:
        after += 1
    if after == last:
        return last
    late = [place for place in range(first + 1, after + 1) if words[place - 1].end - words[first].start >= room / 2]
    return max(late or [after], key=lambda place: (words[place].start - words[place - 1].end, place))


def _span(words: Sequence[Word], first: int, last: int, seconds: float, foreign: Sequence[Span]) -> WordSpan:
    """Half of the pauses around the words stay with them, at most the margin."""
    start, end = words[first].start, words[last - 1].end
    earlier = [word.end for word in words[:first][-1:]] + [each.end for each in foreign if each.end <= start]
    later = [word.start for word in words[last : last + 1]] + [each.start for each in foreign if each.start >= end]
    before = (start - max(earlier)) / 2 if earlier else start
    after = (min(later) - end) / 2 if later else seconds - end
    return WordSpan(
        first, last, round(start - min(MARGIN, max(before, 0.0)), 3), round(end + min(MARGIN, max(after, 0.0)), 3)
    )

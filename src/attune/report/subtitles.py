"""Words cut into subtitles as broadcasters cut them: few characters a line, two lines, readable in the time they stay.

A cue ends where a sentence does, at a pause or, when it is full, after the best of its words to end with.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from attune.types import TextSegment, Word

SENTENCE_ENDS = tuple(".!?…。！？؟।")
CLAUSE_ENDS = tuple(",;:—–،、，")
TITLES = ("mr.", "mrs.", "ms.", "dr.", "prof.", "st.")  # a name follows
MARKS = "\"'”’)]»"  # which may follow the end of a sentence


@dataclass(frozen=True, slots=True)
class SubtitleRules:
    """Limits of a cue. The defaults are those of streaming services for adults' programs in Latin script."""

    line_characters: int = 42
    lines: int = 2
    min_seconds: float = 5 / 6
    max_seconds: float = 7.0
    gap_seconds: float = 1 / 12  # between cues that follow each other
    pause_seconds: float = 1.0  # a longer one ends a cue
    characters_per_second: float = 20.0


USUAL_RULES = SubtitleRules()


def cut_cues(
    segments: Sequence[TextSegment], words: Sequence[Word], rules: SubtitleRules = USUAL_RULES
) -> list[TextSegment]:
    """The cues of a recording in order, each with a newline between its lines.

    Words without times share those of their segment by their length.
    """
    written = [segment for segment in segments if segment.text.strip()]
    ordered = sorted((word for word in words if word.text.strip()), key=_start)
    cues = [cue for segment, later in _followed(written) for cue in _cues(segment, ordered, later, rules)]
    return [replace(cue, end=_end(cue, later, rules)) for cue, later in _followed(cues)]


def words_between(words: Sequence[Word], start: float, end: float) -> Sequence[Word]:
    """The words that begin in a time; all are in the order of their starts."""
    return words[bisect_left(words, start, key=_start) : bisect_left(words, end, key=_start)]


def _start(word: Word) -> float:
    return word.start


def _followed(segments: Sequence[TextSegment]) -> Iterator[tuple[TextSegment, float]]:
    """Each with the start of the next."""
    return zip(segments, [*(each.start for each in segments[1:]), math.inf], strict=False)


def _cues(segment: TextSegment, words: Sequence[Word], following: float, rules: SubtitleRules) -> Iterator[TextSegment]:
    """The cues of a segment; a word after its end, but before the following one, is its own."""
    own = list(words_between(words, segment.start, following)) or _spread(segment)
    space = " " if " " in segment.text.strip() or len(own) == 1 else ""
    pieces = [piece for word in own for piece in _short_enough(word, rules)]
    while pieces:
        count = _count(pieces, space, rules)
        taken, pieces = pieces[:count], pieces[count:]
        text = "\n".join(_lines([word.text for word in taken], space, rules))
        yield TextSegment(taken[0].start, max(taken[-1].end, taken[0].start), text)


def _spread(segment: TextSegment) -> list[Word]:
    """The words of a segment, whose times are guessed from their length."""
    texts = segment.text.split()
    rate = (segment.end - segment.start) / max(1, sum(len(text) + 1 for text in texts))
    words, place = [], segment.start
    for text in texts:
        after = place + rate * (len(text) + 1)
        words.append(Word(text, place, after, 1.0))
        place = after
    return words


def _short_enough(word: Word, rules: SubtitleRules) -> Iterator[Word]:
    """The word, or the parts of one that is longer than a line, as in scripts without spaces."""
    size = rules.line_characters
    rate = (word.end - word.start) / max(1, len(word.text))
    for first in range(0, len(word.text), size):
        part = word.text[first : first + size]
        yield replace(word, text=part, start=word.start + first * rate, end=word.start + (first + len(part)) * rate)


def _count(words: Sequence[Word], space: str, rules: SubtitleRules) -> int:
    """How many of the words the next cue has."""
    for count in range(1, len(words)):
        last, following = words[count - 1], words[count]
        if _ends_sentence(last, following) or following.start - last.end >= rules.pause_seconds:
            return count
        is_long = following.end - words[0].start > rules.max_seconds
        if is_long or not _lines([word.text for word in words[: count + 1]], space, rules):
            return _best_end(words[: count + 1])
    return len(words)


def _best_end(words: Sequence[Word]) -> int:
    """Where to end a full cue: after a clause or at the longest pause in its later half, or else as late as can be."""
    half = range(max(1, len(words) // 2), len(words))
    clauses = [count for count in half if _ends(words[count - 1].text, CLAUSE_ENDS)]
    if clauses:
        return clauses[-1]
    pauses = {count: words[count].start - words[count - 1].end for count in half}
    longest = max(half, key=lambda count: (pauses[count], count))
    return longest if pauses[longest] >= 0.2 else len(words) - 1


def _lines(words: Sequence[str], space: str, rules: SubtitleRules) -> list[str]:
    """The words on as few lines as hold them, even and rather longer below; none if there is no room."""
    whole = space.join(words)
    if len(whole) <= rules.line_characters:
        return [whole]
    if rules.lines == 1:
        return []
    fewer = replace(rules, lines=rules.lines - 1)
    ways = [
        [space.join(words[:count]), *rest]
        for count in range(1, len(words))
        if len(space.join(words[:count])) <= rules.line_characters and (rest := _lines(words[count:], space, fewer))
    ]
    return min(ways, key=_unevenness, default=[])


def _unevenness(lines: Sequence[str]) -> float:
    jumps = sum(abs(len(one) - len(other)) + (len(one) > len(other)) for one, other in pairwise(lines))
    return jumps - 8 * sum(_ends(line, SENTENCE_ENDS + CLAUSE_ENDS) for line in lines[:-1])


def _end(cue: TextSegment, following: float, rules: SubtitleRules) -> float:
    """Long enough to be read, but not into the next cue, nor right up to it."""
    needed = max(rules.min_seconds, len(cue.text) / rules.characters_per_second)
    latest = following - rules.gap_seconds
    wanted = max(cue.end, min(cue.start + needed, cue.start + rules.max_seconds))
    return round(max(min(wanted, latest), min(cue.end, following), cue.start + 0.001), 3)


def _ends_sentence(word: Word, following: Word) -> bool:
    """Whether a mark ends a sentence rather than an abbreviation, before a name or a small letter."""
    if following.text[:1].islower() or word.text.lower() in TITLES:
        return False
    return _ends(word.text, SENTENCE_ENDS)


def _ends(text: str, marks: tuple[str, ...]) -> bool:
    return text.rstrip(MARKS).endswith(marks)

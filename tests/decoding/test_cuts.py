from itertools import pairwise

from attune.audio.vad import Span
from attune.decoding.cuts import cut_at_pauses
from attune.types import Word


def words_at(*spans):
    return [Word(f"w{number}", start, end, 1.0) for number, (start, end) in enumerate(spans)]


def test_rows_hold_all_words_once_and_are_no_longer_than_the_limit():
    words = words_at(*((0.5 * number, 0.5 * number + 0.4) for number in range(100)))
    rows = cut_at_pauses(words, 51.0, 10.0)
    assert [row.first for row in rows] == [0, *(row.last for row in rows[:-1])] and rows[-1].last == 100
    lengths = [row.end - row.start for row in rows]
    assert max(lengths) <= 10.0 and min(lengths[:-1]) >= 5.0
    assert all(left.end <= right.start for left, right in pairwise(rows))


def test_a_full_row_ends_at_the_longest_pause_of_its_later_half():
    rows = cut_at_pauses(words_at((0, 1), (1.9, 3), (3.1, 4), (4.8, 6), (6.1, 7)), 8.0, 6.0)
    assert [(row.first, row.last) for row in rows] == [(0, 3), (3, 5)]
    assert (rows[0].end, rows[1].start) == (4.2, 4.6)


def test_a_long_pause_and_foreign_speech_are_in_no_row():
    words = words_at((1, 2), (2.1, 3), (7, 8), (9.5, 10))
    rows = cut_at_pauses(words, 12.0, 30.0, [Span(8.2, 9.2)])
    assert [(row.first, row.last) for row in rows] == [(0, 2), (2, 3), (3, 4)]
    assert rows[1].end <= 8.2 and rows[2].start >= 9.2
    assert cut_at_pauses([], 3.0, 30.0) == []


def test_a_row_ends_at_every_pause_that_is_longer_than_asked_for():
    words = words_at((0, 1), (1.2, 2), (2.5, 3), (3.3, 4))
    assert [(row.first, row.last) for row in cut_at_pauses(words, 5.0, 30.0, longest_pause=0.4)] == [(0, 2), (2, 4)]
    assert len(cut_at_pauses(words, 5.0, 30.0)) == 1

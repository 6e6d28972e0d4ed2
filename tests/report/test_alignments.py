import pytest

from attune.errors import DataError
from attune.report.alignments import alignments
from attune.types import Prediction


def lines(reference, value, **options):
    (text,) = alignments([Prediction("u1", value, reference)], **options)
    return text.splitlines()


def test_words_stand_under_words_with_their_errors_marked():
    assert lines("the cat sat on mats", "the bat sat on big") == [
        "u1: 2 errors in 5 words (2 substitutions)",
        "  ref  the  cat  sat  on  mats",
        "  hyp  the  bat  sat  on  big",
        "            S             S",
    ]


def test_gaps_are_as_wide_as_the_word_they_stand_for():
    assert lines("one two", "zero one") == [
        "u1: 2 errors in 2 words (1 insertion, 1 deletion)",
        "  ref  ****  one  two",
        "  hyp  zero  one  ***",
        "       I          D",
    ]


def test_wide_characters_and_marks_keep_the_columns_in_line():
    assert lines("東京 へ 行く", "東京 x 行く")[1:] == [
        "  ref  東京  へ  行く",
        "  hyp  東京  x   行く",
        "             S",
    ]
    accented = "cafe\u0301"
    assert lines(f"{accented} a", f"{accented} b")[1] == f"  ref  {accented}  a"
    assert lines(f"{accented} a", f"{accented} b")[3] == "             S"


def test_worst_come_first_after_the_absent_and_the_right_ones_are_left_out():
    predictions = [
        Prediction("right", "a b", "a b"),
        Prediction("one", "a x", "a b"),
        Prediction("two", "x x", "a b"),
        Prediction("also-one", "a x", "a b"),
        Prediction("absent", None, "a b"),
    ]
    assert [text.split(":")[0] for text in alignments(predictions)] == ["absent", "two", "also-one", "one"]
    assert next(alignments(predictions)) == "absent: no prediction\n  ref  a b"


def test_long_utterances_are_broken_into_blocks_that_fit():
    text = lines("one two three four five six", "one two three four five sex", width=24)
    assert max(map(len, text[1:])) <= 24
    assert " ".join(line.removeprefix("  ref").strip() for line in text if line.startswith("  ref")).split() == [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
    ]


def test_an_empty_reference_or_hypothesis_is_all_insertions_or_deletions():
    assert lines("", "noise")[1:] == ["  ref  *****", "  hyp  noise", "       I"]
    assert lines("word", "")[0] == "u1: 1 error in 1 word (1 deletion)"


def test_only_texts_are_aligned():
    with pytest.raises(DataError, match="Prediction 'u1': the value is a list, not text"):
        lines("a b", ["a", "b"])

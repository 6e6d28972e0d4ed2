import random

import pytest

from attune.scoring.edits import Edits, align, count, distances


def textbook_distance(reference, hypothesis):
    row = list(range(len(hypothesis) + 1))
    for i, left in enumerate(reference, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(hypothesis, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (left != right))
    return row[-1]


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("a b c", "a b c", Edits(0, 0, 0, 3)),
        ("a b c", "a x c", Edits(0, 0, 1, 3)),
        ("a b c", "a c", Edits(0, 1, 0, 3)),
        ("a c", "a b c", Edits(1, 0, 0, 2)),
        ("", "a b", Edits(2, 0, 0, 0)),
        ("a b", "", Edits(0, 2, 0, 2)),
        ("", "", Edits(0, 0, 0, 0)),
    ],
)
def test_each_kind_of_edit_is_counted(reference, hypothesis, expected):
    assert count(reference.split(), hypothesis.split()) == expected


def test_counts_alignments_and_distances_agree_with_the_textbook():
    rng = random.Random(3)
    for _ in range(300):
        reference, hypothesis = ([rng.choice("abcd") for _ in range(rng.randint(0, 12))] for _ in range(2))
        counted = count(reference, hypothesis)
        (by_character,) = distances(["".join(reference)], ["".join(hypothesis)])
        assert counted.total == by_character == textbook_distance(reference, hypothesis)
        assert counted.tokens + counted.insertions - counted.deletions == len(hypothesis)
        assert min(counted) >= 0
        assert count_pairs(align(reference, hypothesis)) == counted[:3]


def count_pairs(pairs):
    insertions = sum(left is None for left, _ in pairs)
    deletions = sum(right is None for _, right in pairs)
    changed = sum(left != right for left, right in pairs)
    return insertions, deletions, changed - insertions - deletions


def test_an_alignment_reads_back_as_both_texts():
    rng = random.Random(4)
    for _ in range(100):
        reference, hypothesis = ([rng.choice("abcd") for _ in range(rng.randint(0, 12))] for _ in range(2))
        pairs = align(reference, hypothesis)
        assert [left for left, _ in pairs if left is not None] == reference
        assert [right for _, right in pairs if right is not None] == hypothesis


def test_strings_are_compared_character_by_character():
    assert count("kitten", "sitting") == Edits(1, 0, 2, 6)
    assert align("ab", "b") == [("a", None), ("b", "b")]

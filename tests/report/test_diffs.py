"""Differences in few characters: they say all that alignments say."""

import random
from collections import Counter

from attune.report.diffs import WordCounts, diff
from attune.scoring import edits


def random_pairs(count):
    draw = random.Random(17)
    for _ in range(count):
        yield tuple([draw.choice("abcd") for _ in range(draw.randrange(9))] for _ in range(2))


def decoded(reference, code):
    """As the page reads a code."""
    words, pairs = list(reference), []
    for part in code.split():
        if part[0] == "+":
            pairs.append((None, part[1:]))
        elif part[0] == "~":
            pairs.append((words.pop(0), part[1:]))
        elif part[0] == "-":
            pairs += [(words.pop(0), None) for _ in range(int(part[1:]))]
        else:
            pairs += [(word, word) for word in [words.pop(0) for _ in range(int(part))]]
    return pairs + [(word, word) for word in words]


def test_a_code_is_the_alignment_and_counts_what_the_scores_count():
    for reference, hypothesis in random_pairs(200):
        found = diff(reference, hypothesis, WordCounts())
        assert decoded(reference, found.code) == edits.align(reference, hypothesis)
        counted = edits.count(reference, hypothesis)
        assert found[1:] == (counted.insertions, counted.deletions, counted.substitutions)


def test_words_that_look_like_codes_are_words():
    reference, hypothesis = ["+1", "-2", "3"], ["+1", "~3", "3", "+4"]
    assert decoded(reference, diff(reference, hypothesis, WordCounts()).code) == edits.align(reference, hypothesis)


def test_counts_add_up_over_texts():
    counts = WordCounts()
    diff(["a", "b"], ["a", "c"], counts)
    diff(["b"], [], counts)
    assert counts.seen == Counter(b=2, a=1) and counts.wrong == Counter(b=2)
    assert counts.confused == Counter({("b", "c"): 1, ("b", None): 1})


def test_a_text_without_an_error_costs_nothing():
    assert diff(["a"], ["a"], WordCounts()).code == ""

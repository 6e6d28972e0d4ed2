import itertools

import pytest

from attune.scoring.rover import DELETION, INSERTION, SUBSTITUTION, ScoredWord, VotingRules, _winner, network, vote


def words(text, *confidences):
    texts = text.split()
    return [ScoredWord(each, one) for each, one in zip(texts, confidences or [1.0] * len(texts), strict=True)]


def voted(rules, *transcripts):
    return " ".join(word.text for word in vote(transcripts, rules))


def test_the_majority_wins_and_of_equals_the_first_system():
    rules = VotingRules()
    assert voted(rules, words("the cat sat"), words("the bat sat"), words("the cat sad")) == "the cat sat"
    assert voted(rules, words("a b"), words("a c")) == "a b"
    assert voted(rules, words("one two three"), words("one three"), words("one three")) == "one three"
    assert voted(rules, words(""), words("x"), words("x")) == "x"


def test_confidence_can_outvote_frequency():
    systems = (words("a", 0.3), words("a", 0.3), words("b", 0.95))
    assert voted(VotingRules("average", 1.0), *systems) == "a"
    assert voted(VotingRules("average", 0.2), *systems) == "b"
    assert voted(VotingRules("maximum", 0.2), words("a", 0.9), words("a", 0.1), words("b", 0.8)) == "a"
    assert voted(VotingRules("average", 0.2), words("a", 0.9), words("a", 0.1), words("b", 0.8)) == "b"


def test_the_confidence_of_nothing_decides_on_insertions():
    systems = (words("a b", 0.9, 0.6), words("a", 0.9))
    assert voted(VotingRules("average", 0.0, null_confidence=0.5), *systems) == "a b"
    assert voted(VotingRules("average", 0.0, null_confidence=0.7), *systems) == "a"


def alignments(rows, columns):
    """Every alignment of a network with a transcript, as steps (place, word), None on one side."""
    if rows == 0 and columns == 0:
        yield ()
    for row, column in ((1, 1), (1, 0), (0, 1)):
        if rows >= row and columns >= column:
            step = (rows - 1 if row else None, columns - 1 if column else None)
            yield from ((*rest, step) for rest in alignments(rows - row, columns - column))


def cost(steps, left, right):
    total = 0
    for row, column in steps:
        if row is None:
            total += INSERTION
        elif column is None:
            total += DELETION
        else:
            total += 0 if left[row].text == right[column].text else SUBSTITUTION
    return total


@pytest.mark.parametrize(("left", "right"), [*itertools.product(["", "a", "a b", "b a c", "a a b"], repeat=2)])
def test_two_transcripts_meet_along_a_cheapest_of_all_alignments(left, right):
    one, two = words(left), words(right)
    found = network([one, two])
    assert [place[0] for place in found if place[0]] == one and [place[1] for place in found if place[1]] == two
    mine = sum(
        INSERTION if a is None else DELETION if b is None else SUBSTITUTION * (a.text != b.text) for a, b in found
    )
    assert mine == min(cost(steps, one, two) for steps in alignments(len(one), len(two)))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
def test_every_place_has_the_word_of_the_highest_score(alpha):
    rules = VotingRules("average", alpha, null_confidence=0.4)
    chances = (0.1, 0.5, 0.9)
    for texts in itertools.product(("a", "b", None), repeat=3):
        place = tuple(
            None if text is None else ScoredWord(text, chance) for text, chance in zip(texts, chances, strict=True)
        )
        scores = {}
        for text in dict.fromkeys(texts):
            own = [chance for each, chance in zip(texts, chances, strict=True) if each == text]
            mean = 0.4 if text is None else sum(own) / len(own)
            scores[text] = alpha * len(own) / 3 + (1 - alpha) * mean
        winner = _winner(place, rules)
        assert scores[winner.text if winner else None] == pytest.approx(max(scores.values()))

"""Words are shown once two successive hypotheses agree, and what is shown is never taken back."""

from attune.streaming.agreement import Agreement


def shown(*hypotheses):
    agreement = Agreement()
    return [agreement.update(text.split()) for text in hypotheses]


def test_words_are_shown_when_two_hypotheses_agree():
    assert shown("the", "the cat", "the cat sat", "the cat sat on") == [[], ["the"], ["cat"], ["sat"]]


def test_words_that_change_are_not_shown():
    assert shown("the bat", "the cat", "the cat") == [[], ["the"], ["cat"]]


def test_a_hypothesis_that_contradicts_what_was_shown_adds_nothing():
    assert shown("the cat", "the cat", "a cat sat", "a cat sat", "the cat sat", "the cat sat on") == [
        [],
        ["the", "cat"],
        [],
        [],
        [],
        ["sat"],
    ]

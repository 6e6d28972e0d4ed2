import random

import pytest

from attune.scoring.compounds import compound_wer, count_errors


def test_compounds_match_in_both_directions():
    assert count_errors(["white", "paper"], ["whitepaper"]) == 0
    assert count_errors(["the", "whitepaper", "is"], ["the", "white", "paper", "was"]) == 1
    assert count_errors(["a", "b", "c"], ["abc"]) == 0
    assert count_errors([], ["x"]) == 1 and count_errors(["x"], []) == 1


def random_pairs(count, seed=0):
    """Texts of a few short words, of which many are joined, split, lost or changed."""
    source = random.Random(seed)
    words = [
        "white",
        "paper",
        "whitepaper",
        "ice",
        "cream",
        "icecream",
        "a",
        "b",
        "ab",
        "ba",
        "aba",
        "on",
        "to",
        "onto",
    ]
    for _ in range(count):
        reference = source.choices(words, k=source.randint(1, 12))
        hypothesis = []
        for word in reference:
            chance = source.random()
            if chance < 0.15:
                hypothesis.append(source.choice(words))
            elif chance < 0.3 and hypothesis:
                hypothesis[-1] += word
            elif chance < 0.4 and len(word) > 1:
                hypothesis += [word[: len(word) // 2], word[len(word) // 2 :]]
            elif chance > 0.1:
                hypothesis.append(word)
        yield reference, hypothesis


def test_a_thousand_pairs_have_the_errors_that_kaldialign_counts():
    kaldialign = pytest.importorskip("kaldialign")
    pairs = list(random_pairs(1000))
    for reference, hypothesis in pairs:
        theirs = kaldialign.edit_distance(reference, hypothesis, merge_compounds=True)["total"]
        assert count_errors(reference, hypothesis) == theirs, (reference, hypothesis)
    whole = kaldialign.batch_error_rate(*map(list, zip(*pairs, strict=True)), merge_compounds=True)["err_rate"]
    texts = [[" ".join(words) for words in side] for side in zip(*pairs, strict=True)]
    assert compound_wer(*texts).value == pytest.approx(100 * whole)

import math
import random

import pytest

from attune.errors import DataError
from attune.scoring.error_rates import score_texts, score_transcripts

from work import lines_run

REFERENCES = ["the cat sat", "a dog", "one two three", "silence", "", "fine"]
HYPOTHESES = ["the bat sat", "a big dog", "one three", None, "noise", "fine"]


def test_counts_have_speechbrains_names_and_leave_absent_hypotheses_out():
    assert score_texts(REFERENCES, HYPOTHESES).counts == dict(
        num_edits=4,
        num_scored_tokens=9,
        num_erroneous_sents=4,
        num_scored_sents=5,
        num_absent_sents=1,
        num_ref_sents=6,
        insertions=2,
        deletions=1,
        substitutions=1,
        num_char_edits=1 + 4 + 4 + 5,
        num_scored_chars=11 + 5 + 13 + 0 + 4,
    )


def test_rates_are_percentages_of_the_counts():
    scores = score_texts(REFERENCES, HYPOTHESES)
    assert scores.values["wer"].value == 100 * 4 / 9
    assert scores.values["cer"].value == 100 * 14 / 33
    assert scores.values["ser"].value == 100 * 4 / 5
    assert scores.counts["num_edits"] == 4
    assert {score.metric.unit for score in scores.values.values()} == {"%"}


def test_counts_of_the_ranks_add_up_to_those_of_the_whole():
    shares = [(REFERENCES[rank::2], HYPOTHESES[rank::2]) for rank in range(2)]
    parts = [score_texts(*share).counts for share in (*shares, ([], []))]  # the last rank had nothing to do
    whole = score_texts(REFERENCES, HYPOTHESES).counts
    assert {name: sum(part[name] for part in parts) for name in whole} == whole


def test_an_empty_hypothesis_is_all_deletions():
    scores = score_texts(["one two"], [""])
    assert scores.counts["deletions"] == 2
    assert scores.values["wer"].value == scores.values["cer"].value == 100


def test_insertions_into_empty_references_alone_are_not_a_perfect_score():
    scores = score_texts(["", ""], ["", "noise here"])
    assert scores.counts["insertions"] == 2
    assert scores.counts["num_scored_tokens"] == 0
    assert scores.values["wer"].value == 200


@pytest.mark.parametrize("references", [[], ["never recognized"]])
def test_nothing_to_score_is_not_a_perfect_score(references):
    scores = score_texts(references, [None] * len(references))
    assert all(math.isnan(score.value) for score in scores.values.values())
    assert scores.counts["num_absent_sents"] == len(references)


def test_white_space_of_any_kind_only_parts_words():
    assert score_texts(["one  two\tthree\u00a0"], [" one two three"]).counts["num_char_edits"] == 0


def test_normalized_and_raw_figures_stand_side_by_side():
    scores = score_transcripts(["One TWO", "three"], ["one two", None], str.lower, "lower")
    assert scores.values["wer"].value == 0
    assert scores.values["raw_wer"].value == 100
    assert scores.values["raw_cer"].value == 100 * 4 / 7
    assert scores.counts["num_edits"] == 0
    assert scores.conditions == {"normalizer": "lower"}
    assert {name: score.metric.name for name, score in scores.values.items()} == {name: name for name in scores.values}


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="2 references but 1 hypotheses"):
        score_texts(["a", "b"], ["a"])


@pytest.mark.parametrize("words", [16, 64])
def test_utterances_are_compared_in_a_few_lines_each_whatever_their_length(words):
    references, hypotheses = noisy_utterances(2000, words)
    assert score_texts(references, hypotheses).counts["num_scored_tokens"] == 2000 * words
    assert lines_run(score_texts, references, hypotheses) < 100 * 2000


def noisy_utterances(number, words):
    rng = random.Random(1)
    vocabulary = [f"word{index}" for index in range(5000)]
    references = [rng.choices(vocabulary, k=words) for _ in range(1000)]
    hypotheses = [
        [rng.choice(vocabulary) if rng.random() < 0.1 else word for word in text if rng.random() < 0.95]
        for text in references
    ]
    repeats = number // 1000
    return [" ".join(text) for text in references] * repeats, [" ".join(text) for text in hypotheses] * repeats

import pytest

from attune.scoring.slots import Slot, score_slots, type_f1, value_edits

SONG = [Slot("artist", "queen"), Slot("song", "one vision")]


@pytest.mark.parametrize(
    ("reference", "hypothesis", "f1"),
    [
        (SONG, SONG, 1.0),
        (SONG, SONG[:1], 2 / 3),
        ([], [], 1.0),
        (SONG, [], 0.0),
        ([], SONG, 0.0),
        (SONG[:1], [Slot("artist", "abba"), Slot("artist", "kiss")], 1.0),  # types are sets
    ],
)
def test_the_types_of_an_utterance_are_compared_as_sets(reference, hypothesis, f1):
    assert type_f1(reference, hypothesis) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("hypothesis", "edits"),
    [
        (SONG, 0),
        ([], 15),
        ([Slot("artist", "queens"), *SONG], 0),  # the nearest value of the type
        ([Slot("artist", "quen"), Slot("song", "vision")], 5),
        ([Slot("song", "one vision"), Slot("artist", "one")], 4),
    ],
)
def test_each_reference_value_is_compared_with_the_nearest_of_its_type(hypothesis, edits):
    found, characters = value_edits(SONG, hypothesis)
    assert characters == 15
    assert found == edits


def test_f1_is_a_mean_over_utterances_and_the_cer_a_ratio_of_sums():
    scores, counts = score_slots([(SONG, SONG), (SONG[:1], []), ([], [])])
    assert scores["slot_type_f1"].value == pytest.approx(100 * 2 / 3)
    assert scores["slot_value_cer"].value == pytest.approx(100 * 5 / 20)
    assert counts == {"num_value_edits": 5, "num_value_chars": 20, "num_scored": 3}


def test_values_may_have_any_characters():
    odd = [Slot("time", "12:30; or 1")]
    assert value_edits(odd, odd) == (0, 11)

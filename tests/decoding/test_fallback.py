from attune.decoding.fallback import compression_ratio, fall_back, needs_fallback
from attune.types import Hypothesis

SURE, UNSURE = Hypothesis((1, 2, 3), -0.4), Hypothesis((4, 5, 6), -9.0)


def test_rejected_rows_are_decoded_again_at_rising_temperatures_until_one_passes():
    asked = []

    def decode(rows, temperature):
        asked.append((list(rows), temperature))
        return [Hypothesis((row,), -0.1) if row == 2 or temperature > 0.5 else UNSURE for row in rows]

    found = fall_back([SURE, UNSURE, UNSURE], decode, lambda each: needs_fallback(each, ""))
    assert found == [SURE, Hypothesis((1,), -0.1), Hypothesis((2,), -0.1)]
    assert asked == [([1, 2], 0.2), ([1], 0.4), ([1], 0.6)]


def test_what_stays_rejected_is_kept_as_last_decoded():
    hottest = Hypothesis((7,), -8.0)
    found = fall_back([UNSURE], lambda rows, heat: [hottest if heat == 1.0 else UNSURE], lambda each: True)
    assert found == [hottest]


def test_low_scores_and_loops_need_fallback():
    assert not needs_fallback(SURE, "a sentence like any other")
    assert needs_fallback(UNSURE, "a sentence like any other")
    assert needs_fallback(SURE, "nineteen " * 50)
    assert compression_ratio("a sentence like any other, written once and not again") < 1.5


def test_a_low_score_needs_no_fallback_where_filters_forbade_what_was_more_probable():
    assert not needs_fallback(Hypothesis((4, 5, 6), -9.0, filtered_log_prob=-0.4), "a sentence like any other")
    assert needs_fallback(Hypothesis((4, 5, 6), -0.4, filtered_log_prob=-9.0), "a sentence like any other")

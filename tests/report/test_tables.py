import math

from attune.report.tables import figure, scores_table
from attune.types import Score, Scores


def test_a_figure_has_its_interval():
    assert figure(Score(12.345, 10.1, 14.6)) == "12.35 % [10.10, 14.60]"


def test_nothing_scored_is_said_in_words():
    assert figure(Score(math.nan, math.nan, math.nan)) == "nothing scored"


def test_a_table_shows_figures_normalizer_and_counts_in_aligned_columns():
    before = Scores({"wer": Score(80, 75, 85), "raw_wer": Score(90, 85, 100)}, {"num_edits": 12345}, "basic")
    after = Scores({"wer": Score(9.5, 8, 11)}, {"num_edits": 7}, "basic")
    assert scores_table({"before": before, "after": after}).splitlines() == [
        "                             before                 after",
        "WER          80.00 % [75.00, 85.00]  9.50 % [8.00, 11.00]",
        "raw WER     90.00 % [85.00, 100.00]",
        "normalizer                    basic                 basic",
        "num_edits                    12,345                     7",
    ]

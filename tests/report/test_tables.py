import json
import math

import pytest

from attune.report.tables import (
    brief_score,
    brief_value,
    describe_score,
    groups_table,
    metric_label,
    scores_json,
    scores_table,
)
from attune.scoring.error_rates import RAW_WER, WER
from attune.types import Metric, Score, Scores

SI_SDR = Metric("si_sdr", "dB", True, "Scale-invariant signal-to-distortion ratio.")
PERPLEXITY = Metric("perplexity", "", False, "Perplexity of the text.")


@pytest.mark.parametrize(("metric", "unit"), [(WER, " %"), (SI_SDR, " dB"), (PERPLEXITY, "")])
def test_a_score_has_its_unit_and_its_interval(metric, unit):
    assert describe_score(Score(metric, 12.345, 10.1, 14.6)) == f"12.35{unit} [10.10, 14.60]"


def test_a_score_without_an_interval_stands_alone():
    assert describe_score(Score(SI_SDR, 9.5, math.nan, math.nan)) == "9.50 dB"


def test_nothing_scored_is_a_sentence():
    assert describe_score(Score(WER, math.nan, math.nan, math.nan)) == "nothing scored"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("wer", "WER"),
        ("raw_wer", "raw WER"),
        ("si_sdr", "SI-SDR"),
        ("accuracy", "accuracy"),
        ("f1", "F1"),
        ("bleu", "BLEU"),
    ],
)
def test_names_are_printed_as_the_field_writes_them(name, label):
    assert metric_label(name) == label


def test_a_table_shows_scores_conditions_and_counts_in_aligned_columns():
    basic = {"normalizer": "basic"}
    values = {"wer": Score(WER, 80, 75, 85), "raw_wer": Score(RAW_WER, 90, 85, 100)}
    before = Scores(values, {"num_edits": 12345}, basic)
    after = Scores({"wer": Score(WER, 9.5, 8, 11)}, {"num_edits": 7}, basic)
    assert scores_table({"before": before, "after": after}).splitlines() == [
        "score [95 % CI]                   before                 after",
        "wer               80.00 % [75.00, 85.00]  9.50 % [8.00, 11.00]",
        "raw_wer          90.00 % [85.00, 100.00]",
        "normalizer                         basic                 basic",
        "num_edits                         12,345                     7",
    ]


def test_many_sets_are_rows_and_only_the_first_score_has_an_interval():
    sets = {
        name: Scores(
            {"wer": Score(WER, 9.5, 8, 11), "raw_wer": Score(RAW_WER, 20, 15, 25)}, {}, {"normalizer": "basic"}
        )
        for name in ("a", "b", "c", "a long name")
    }
    lines = scores_table(sets).splitlines()
    assert lines[0].split() == ["wer", "raw_wer", "normalizer"]
    assert lines[4] == "a long name  9.50 % [8.00, 11.00]  20.00 %       basic"


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (Score(WER, 66.67, 55.2, 77.9), "66.7 % (95 % CI 55–78)"),
        (Score(WER, 9.53, 8.04, 11.01), "9.5 % (95 % CI 8.0–11.0)"),
        (Score(WER, 2.053, 1.61, 2.44), "2.05 % (95 % CI 1.61–2.44)"),
        (Score(SI_SDR, 9.5, math.nan, math.nan), "9.50 dB"),
        (Score(WER, 100.0, 100.0, 100.0), "100.00 %"),
    ],
)
def test_a_line_has_the_decimals_that_the_interval_supports(score, text):
    assert brief_score(score) == text


def test_scores_as_plain_data_describe_themselves():
    scores = Scores({"si_sdr": Score(SI_SDR, 9.5, 8, 11)}, {"utterances": 3}, {"channel": "left"})
    assert json.loads(json.dumps(scores_json(scores), allow_nan=False)) == {
        "scores": {"si_sdr": {"value": 9.5, "low": 8, "high": 11, "unit": "dB", "higher_is_better": True}},
        "counts": {"utterances": 3},
        "conditions": {"channel": "left"},
    }


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_not_finite_is_null(value):
    assert scores_json(Scores({"si_sdr": Score(SI_SDR, value, value, value)}, {}))["scores"] == {"si_sdr": None}


def test_a_table_of_groups_has_the_names_that_recipes_have():
    scores = Scores({"wer": Score(WER, 9.5, 8, 11), "raw_wer": Score(RAW_WER, 20, 15, 25)}, {}, {"normalizer": "basic"})
    assert groups_table({"anna": scores}, "speaker").splitlines()[0].split() == ["speaker", "wer"]


def test_a_value_in_a_log_is_as_precise_as_its_interval():
    assert brief_value(Score(WER, 33.333, 0.0, 66.67)) == "33.3 %"
    assert brief_value(Score(WER, 2.3456, 2.1, 2.6)) == "2.35 %"

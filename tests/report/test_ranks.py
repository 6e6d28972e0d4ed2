from attune.report.ranks import ranks_table
from attune.scoring.error_rates import score_texts


def test_ranks_add_up_to_the_scores_of_the_whole():
    parts = [(["a b c", "d"], ["a x c", "d e"]), (["f g", "h"], ["f", None]), ([], [])]
    counts = [score_texts(*part).counts for part in parts]
    whole = score_texts(*([text for part in parts for text in part[side]] for side in (0, 1)))
    lines = [line.split() for line in ranks_table(counts).splitlines()]
    assert lines[0] == [
        "rank",
        "WER",
        "SER",
        *["insertions", "deletions", "substitutions", "words", "utterances", "absent"],
    ]
    assert lines[1] == ["0", "50.00", "%", "100.00", "%", "1", "0", "1", "4", "2", "0"]
    assert lines[2] == ["1", "50.00", "%", "100.00", "%", "0", "1", "0", "2", "1", "1"]
    assert lines[3][:5] == ["2", "nothing", "scored", "nothing", "scored"]
    assert lines[4] == ["all", "50.00", "%", "100.00", "%", "1", "1", "1", "6", "3", "1"]
    assert float(lines[4][1]) == round(whole.values["wer"].value, 2)


def test_other_tasks_show_their_own_counts():
    assert ranks_table([{"predictions": 3}, {"predictions": 4}]).splitlines() == [
        "rank  predictions",
        "0               3",
        "1               4",
        "all             7",
    ]

"""Curves: every figure of the log, and no spike lost."""

from attune.report.curves import MOST_POINTS, curves_of, thinned


def test_figures_and_scores_become_curves_with_titles():
    history = [{"step": 1, "loss": 2.0, "epoch": 0}, {"step": 2, "loss": None}, {"step": 3, "loss": 1.0}]
    history += [{"step": 4, "dev.wer": 9.0}, {"step": 5, "dev.wer": 8.0, "dev.raw_wer": 8.0}]
    assert curves_of(history) == [
        {"name": "loss", "title": "Training loss", "steps": [1, 3], "values": [2.0, 1.0]},
        {"name": "dev.wer", "title": "dev WER", "steps": [4, 5], "values": [9.0, 8.0]},
    ]


def test_a_spike_among_a_million_steps_is_still_there():
    points = [(step, 99.0 if step == 777_777 else 1.0) for step in range(1_000_000)]
    kept = thinned(points)
    assert (777_777, 99.0) in kept and len(kept) <= MOST_POINTS + 2
    assert kept[0][0] == 0 and kept[-1][0] == 999_999

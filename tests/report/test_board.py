import pytest

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from attune.report.board import Board


def test_tensorboard_reads_what_is_written(tmp_path):
    board = Board(tmp_path / "tensorboard")
    for step in (1, 2):
        board.add(step, **{"train/loss": 1.5 / step, "train/lr": 1e-4})
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(found.Tags()["scalars"]) == {"train/loss", "train/lr"}
    assert [(event.step, event.value) for event in found.Scalars("train/loss")] == [(1, 1.5), (2, 0.75)]


def test_a_folder_that_is_gone_is_the_callers_error_and_is_not_made_again(tmp_path):
    (tmp_path / "run").mkdir()
    board = Board(tmp_path / "run/tensorboard")
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        board.add(1, loss=1.0)
    assert not (tmp_path / "run").exists()

"""attune sweep: a grid of runs that can be continued, ranked by dev."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attune.cli import main
from attune.errors import ConfigError
from attune.launch.sweep import visible_device
from attune.metrics import Metric, Score, Scores
from attune.run import Run
from attune.studies.sweep import PointResult, ranked, sweep_points

from tiny import write_recipe

pytestmark = pytest.mark.recipe

SI_SDR = Metric("si_sdr", "dB", True, "Scale-invariant signal-to-distortion ratio.")
QUICK = ["train.warmup=0", "train.eval_every=null", "train.keep_best=null", "train.save_every=3", "train.steps=3"]


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("sweep"))


def test_every_combination_of_values_is_a_point_and_lists_are_one_value(recipe_file, tmp_path):
    words = ["optimizer.lr=1e-3,1e-2", "seed=1,2", f"data.train=[{recipe_file.parent}/train/manifest.jsonl,b.jsonl]"]
    points = sweep_points(recipe_file, words, tmp_path)
    names = [f"optimizer.lr={lr},seed={seed}" for lr in ("1e-3", "1e-2") for seed in (1, 2)]
    assert [point.name for point in points] == names and len({point.run for point in points}) == 4
    assert len(points[0].recipe().data.train) == 2 and points[0].recipe().data.test == ()
    assert points[2].recipe().optimizer.lr == 1e-2 and points[2].recipe().seed == 1


def test_what_cannot_be_compared_or_is_misspelled_is_refused_before_anything_runs(recipe_file, tmp_path):
    for words, message in [
        (["task.normalizer=none,basic"], "task.normalizer cannot be swept"),
        (["optimizer.lr=1e-3"], "Nothing to sweep"),
        (["optimizer.lr=1e-3,fast"], "optimizer.lr: expected a number"),
        (["seed=1,2", "data.dev=[]", "train.eval_every=null", "train.keep_best=null"], "set data.dev"),
    ]:
        with pytest.raises(ConfigError, match=message):
            sweep_points(recipe_file, words, tmp_path)


def test_points_are_trained_once_and_ranked_by_dev_with_intervals(recipe_file, tmp_path, capsys):
    words = ["sweep", str(recipe_file), "optimizer.lr=1e-9,1e-2", *QUICK, "--workers=0", f"--to={tmp_path}"]
    assert main([*words, "data.max_seconds=0.2,30"]) == 1
    out, err = capsys.readouterr()
    assert "4/4" in err and "are longer than data.max_seconds" in err
    assert out.splitlines()[0].split() == ["point", "dev", "wer", "[95", "%", "CI]"] and out.count("failed:") == 2
    saved = json.loads((tmp_path / "sweep.json").read_text())
    values = [each["scores"]["wer"]["value"] for each in saved if "scores" in each]
    assert values == sorted(values) and len(values) == 2 and all("test" not in each for each in saved)
    models = [path / "model/model.safetensors" for path in sorted(tmp_path.glob("*30"))]
    before = [path.stat().st_mtime_ns for path in models]
    assert main([*words, "data.max_seconds=30"]) == 0  # other names, so other points
    assert main([*words, "data.max_seconds=0.2,30", "--json"]) == 1
    assert [path.stat().st_mtime_ns for path in models] == before and len(models) == 2


def test_a_point_that_diverged_is_never_the_best(recipe_file, tmp_path):
    points = sweep_points(recipe_file, ["seed=1,2,3", "train.keep_best=null"], tmp_path)
    values = (math.nan, 5.0, 3.0)
    scores = [Scores({"si_sdr": Score(SI_SDR, value, value, value)}, {}, {}) for value in values]
    results = [PointResult(point, each) for point, each in zip(points, scores, strict=True)]
    _, order = ranked(results, points[0].recipe())
    assert [each.point.name for each in order] == ["seed=2", "seed=3", "seed=1"]


@pytest.mark.recipe
def test_points_run_side_by_side(recipe_file, tmp_path, capsys):
    words = ["sweep", str(recipe_file), "seed=1,2", *QUICK, "--workers=0", f"--to={tmp_path}", "--json"]
    assert main([*words, "--devices=2", "--device=cpu"]) == 0
    assert {each["point"] for each in json.loads(capsys.readouterr().out)} == {"seed=1", "seed=2"}


def test_each_process_has_one_of_the_devices_that_are_shown():
    assert [visible_device(number, None) for number in (0, 1)] == ["0", "1"]
    assert [visible_device(number, "4,GPU-6") for number in (0, 1)] == ["4", "GPU-6"]
    assert visible_device(0, "") == ""


@pytest.fixture
def side_by_side(recipe_file, tmp_path):
    """A sweep of two points that would train for minutes, once both have begun; their runs' folders."""
    words = [
        "sweep",
        str(recipe_file),
        "seed=1,2",
        "train.steps=100000",
        "train.eval_every=null",
        "train.keep_best=null",
    ]
    command = [sys.executable, "-m", "attune", *words, f"--to={tmp_path}", "--devices=2", "--device=cpu", "--workers=0"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as sweep:
        runs = [Run(tmp_path / f"seed={seed}") for seed in (1, 2)]
        wait_until(lambda: all(any(line["event"] == "step" for line in run.log_lines()) for run in runs))
        yield sweep, runs
        sweep.kill()


def wait_until(holds, seconds=120.0):
    until = time.monotonic() + seconds
    while not holds() and time.monotonic() < until:
        time.sleep(0.1)
    assert holds()


def test_a_point_that_is_killed_is_not_the_end_of_the_others_and_a_stop_signal_is(side_by_side):
    sweep, runs = side_by_side
    os.kill(runs[0].status().pid, signal.SIGKILL)
    before = len(list(runs[1].log_lines()))
    wait_until(lambda: len(list(runs[1].log_lines())) > before + 5)
    sweep.terminate()
    assert sweep.wait(60) == 75
    assert runs[1].state() == "preempted"


def test_points_end_with_the_command_that_is_killed(side_by_side):
    sweep, runs = side_by_side
    workers = [run.status().pid for run in runs]
    sweep.kill()
    wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), 20)

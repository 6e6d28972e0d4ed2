"""A run as others see it while it trains: state, rate, curves, examples; nothing is disturbed."""

import json
import time

import pytest

from attune.analysis.watch import find_runs, view_run
from attune.errors import DataError
from attune.report.sparks import spark
from attune.run import Run

from made_runs import make_run
from processes import attune


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    run = make_run(folder / "runs/one", lambda utterance, number: utterance.text)
    run.log("samples", step=15, split="dev", samples=[{"id": "u1", "reference": "seven", "hypothesis": "eleven"}])
    return folder / "runs", run


def training(folder, now):
    """A run that is half way, a step every two seconds."""
    run = Run(folder)
    folder.mkdir()
    (folder / "recipe.yaml").write_text("run: x\n")
    run.set_status("running")
    run.log("started", step=0, steps=100)
    lines = [{"time": now - 2 * (50 - step), "event": "step", "step": step, "loss": 1 / step} for step in range(1, 51)]
    with (folder / "log.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.write('{"time": 1, "event": "st')  # being written just now
    return run


def test_the_time_that_is_left_follows_from_the_last_steps(tmp_path):
    now = time.time()
    view = view_run(training(tmp_path / "run", now))
    assert (view.step, view.steps, view.state) == (50, 100, "running")
    assert view.eta_seconds == pytest.approx(100)
    late = view_run(Run(tmp_path / "run"), now=now + 3600)
    assert late.state.startswith("running, silent for 6")


def test_runs_are_found_below_a_folder_and_a_run_is_itself(runs):
    folder, run = runs
    assert [each.folder for each in find_runs(folder)] == [run.folder]
    assert [each.folder for each in find_runs(run.folder)] == [run.folder]
    with pytest.raises(DataError, match="does not exist"):
        find_runs(folder / "nothing")


def test_without_a_terminal_a_run_is_printed_once_with_curves_and_examples(runs):
    _, run = runs
    done = attune("watch", run.folder)
    assert done.returncode == 0, done.stderr
    assert "done, step 20 of 20" in done.stdout and "Training loss" in done.stdout and "▁" in done.stdout
    assert "ref  seven" in done.stdout and "hyp  eleven" in done.stdout and "\x1b[H" not in done.stdout


def test_a_folder_is_a_table_and_json_is_for_programs(runs):
    folder, _ = runs
    assert "run  done, step 20 of 20" in attune("watch", folder).stdout
    (found,) = json.loads(attune("watch", folder, "--json").stdout)
    assert found["step"] == 20 and found["curves"][0]["name"] == "loss"


def test_curves_in_blocks_fall_as_they_fall():
    assert spark([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"
    assert spark([1.0] * 5) == "▁▁▁▁▁" and spark([]) == ""
    assert len(spark(list(range(1000)), 20)) == 20

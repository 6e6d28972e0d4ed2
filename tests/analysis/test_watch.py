"""A run as others see it while it trains: state, rate, curves, examples; nothing is disturbed."""

import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import unicodedata
from contextlib import suppress

import pytest

from attune.analysis.watch import find_runs, view_run
from attune.errors import DataError
from attune.report.sparks import spark
from attune.run import Run

from made_runs import make_run
from processes import attune

CLEAR = b"\x1b[H\x1b[J"


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
    assert late.state.startswith("running, silent for 6") and late.eta_seconds is None


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


def test_runs_of_one_name_in_different_folders_can_be_told_apart(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        training(tmp_path / name / "best", time.time())
    shown = attune("watch", tmp_path).stdout
    assert "a/best" in shown and "b/best" in shown


def test_a_log_with_figures_that_json_has_no_word_for_is_read(tmp_path):
    run = training(tmp_path / "run", time.time())
    with (run.folder / "log.jsonl").open("a") as file:
        file.write('\n{"time": 1, "event": "step", "step": 51, "loss": NaN, "lr": 1e-3}\n')
    shown = attune("watch", run.folder)
    assert shown.returncode == 0 and "Training loss" in shown.stdout
    assert "NaN" not in attune("watch", run.folder, "--json").stdout


def test_a_run_in_the_current_folder_has_its_name(tmp_path, monkeypatch):
    training(tmp_path / "mine", time.time())
    monkeypatch.chdir(tmp_path / "mine")
    assert json.loads(attune("watch", ".", "--json").stdout)[0]["name"] == "mine"


def test_runs_that_are_removed_meanwhile_are_no_error(tmp_path):
    stop = threading.Event()

    def come_and_go():
        while not stop.is_set():
            training(tmp_path / "run", 0.0)
            shutil.rmtree(tmp_path / "run")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            for run in find_runs(tmp_path):
                view_run(run)
    finally:
        stop.set()
        thread.join()


def test_what_is_redrawn_fits_the_terminal(tmp_path):
    for number in range(40):
        training(tmp_path / f"run-{number}-一个很长的名字-{'x' * 60}", time.time())
    frame = first_frame("watch", tmp_path, rows=20, columns=80)
    lines = frame.splitlines()
    assert len(lines) <= 20 and lines[-1].endswith("… 23 more lines: make the terminal taller")
    wide = (sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in line) for line in lines)
    assert max(wide) <= 80


def first_frame(*words, rows, columns):
    """What a command draws first in a terminal of a size."""
    inside, outside = pty.openpty()
    fcntl.ioctl(outside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "NO_COLOR": "1"}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    command = [sys.executable, "-P", "-m", "attune", *map(str, words)]
    process = subprocess.Popen(command, stdin=outside, stdout=outside, stderr=outside, env=environment)
    os.close(outside)
    drawn = b""
    while drawn.count(CLEAR) < 2:
        drawn += os.read(inside, 65536)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):  # the other side is closed
        while os.read(inside, 65536):
            pass
    process.wait()
    return drawn.split(CLEAR)[1].decode()


def test_curves_in_blocks_fall_as_they_fall():
    assert spark([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"
    assert spark([1.0] * 5) == "▁▁▁▁▁" and spark([]) == ""
    assert len(spark(list(range(1000)), 20)) == 20

"""`--devices`: the command starts its own ranks, and leaves none behind."""

import contextlib
import fcntl
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from attune.run import Run

from processes import attune, start, wait, wait_for_step
from tiny import write_recipe

pytestmark = pytest.mark.recipe


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("launch"))


def test_two_devices_train_and_evaluate_for_a_program_that_runs_the_commands(recipe, tmp_path):
    run = tmp_path / "run"
    words = ["train", str(recipe), f"run={run}", "train.steps=3", "train.eval_every=3", "--devices=2"]
    program = f"import sys; from attune.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program, "own", "--words"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "has the model of step 3" in done.stdout
    assert (run / "command.txt").read_text() == f"attune {shlex.join(words)}\n"
    scored = attune("evaluate", run, "--on", "dev", "--devices", 2, "--json")
    assert scored.returncode == 0 and '"num_scored_sents": 6' in scored.stdout


def test_a_mistake_in_the_recipe_is_told_once_before_any_rank_starts(recipe, tmp_path):
    done = attune("train", recipe, f"run={tmp_path / 'run'}", "train.stpes=3", "--devices", 2)
    assert done.returncode == 2
    assert done.stderr.count("did you mean") == 1 and not (tmp_path / "run").exists()


def test_ranks_that_do_not_meet_say_where_they_looked(recipe, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        first = attune("train", recipe, f"run={tmp_path / 'run'}", "--timeout=1", RANK="0", **place)
    second = attune("train", recipe, f"run={tmp_path / 'run'}", "--timeout=1", seconds=30, RANK="1", **place)
    assert first.returncode == second.returncode == 1
    assert "Rank 0 of 2 did not meet the others at 127.0.0.1:" in first.stderr and "EADDRINUSE" in first.stderr
    assert "Rank 1 of 2 did not meet" in second.stderr and "nobody answered for 1 s" in second.stderr
    assert len(second.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()


@contextlib.contextmanager
def mute_server():
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_rank_whose_port_is_somebody_elses_says_so_within_the_timeout(recipe, tmp_path):
    with mute_server() as place:
        host, _, port = place.partition(":")
        variables = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": host, "MASTER_PORT": port}
        done = attune("train", recipe, f"run={tmp_path / 'run'}", "--timeout=2", seconds=30, **variables)
    assert done.returncode == 1
    assert f"Rank 1 of 2 did not meet the others at {place}: what answers there is no rendezvous" in done.stderr


def test_nodes_whose_port_is_somebody_elses_say_so_within_the_timeout(recipe, tmp_path):
    with mute_server() as place:
        words = ["train", recipe, f"run={tmp_path / 'run'}", "--nodes=2", "--rendezvous", place, "--timeout=2"]
        done = attune(*words, seconds=30)
    assert done.returncode == 1
    assert f"What answers at {place} is no rendezvous" in done.stderr


def test_a_node_that_waits_for_a_mute_rendezvous_can_be_stopped(recipe, tmp_path):
    with mute_server() as place:
        words = ["train", str(recipe), f"run={tmp_path / 'run'}", "--nodes=2", "--rendezvous", place]
        (process,) = start(words)
        time.sleep(2)
        os.kill(process.pid, signal.SIGTERM)
        process.join(20)
        code = process.exitcode
        process.kill()
    assert code == 75


def test_a_mistake_found_by_the_ranks_is_told_once_with_exit_2(recipe, tmp_path):
    done = attune("train", recipe, f"run={tmp_path / 'run'}", "data.train=[nowhere.jsonl]", "--devices", 2)
    assert done.returncode == 2
    assert done.stderr.count("nowhere.jsonl") == 1 and len(done.stderr.splitlines()) == 1


def ranks_of(run: Path) -> list[int]:
    """Processes whose command line names this run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"run={run}" in (entry / "cmdline").read_text().split("\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def listens(process: subprocess.Popen) -> bool:
    """Whether a process has a handler for SIGTERM."""
    caught = re.search(r"^SigCgt:\s+(\w+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_launcher_that_is_stopped_before_there_are_ranks_exits_75(recipe, tmp_path):
    command = [sys.executable, "-m", "attune", "train", str(recipe), f"run={tmp_path / 'run'}", "--devices=2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as launcher:
        deadline = time.monotonic() + 60
        while not listens(launcher) and time.monotonic() < deadline:
            time.sleep(0.001)
        launcher.send_signal(signal.SIGTERM)
        assert launcher.wait(60) == 75
    assert not (tmp_path / "run/checkpoints").exists()


@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_whose_terminal_is_gone_saves_and_exits_75(devices, recipe, tmp_path):
    run = tmp_path / "run"
    with train_in_terminal(run, recipe, "train.steps=100000", "--devices", devices) as (training, terminal):
        wait_for_step(run, 1)
        os.close(terminal)
        assert training.wait(100) == 75
    assert Run(run).state() == "preempted" and list((run / "checkpoints").iterdir())
    assert not ranks_of(run)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_that_ignores_the_loss_of_its_terminal_trains_to_its_end(devices, recipe, tmp_path):
    run, steps = tmp_path / "run", ["train.steps=60", "train.eval_every=1"]
    with train_in_terminal(run, recipe, *steps, "--devices", devices, on_loss=signal.SIG_IGN) as (training, terminal):
        wait_for_step(run, 1)
        os.close(terminal)
        assert training.wait(100) == 0
    assert Run(run).state() == "done"


@contextlib.contextmanager
def train_in_terminal(run, recipe, *words, on_loss=signal.SIG_DFL):
    """A training in a terminal of its own, as after a login; these tests may run under nohup."""

    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, on_loss)

    terminal, other_end = pty.openpty()
    words = ["train", recipe, f"run={run}", "train.warmup=0", "data.test=[]", *words]
    with subprocess.Popen(
        [sys.executable, "-m", "attune", *map(str, words)],
        **dict.fromkeys(("stdin", "stdout", "stderr"), other_end),
        start_new_session=True,
        preexec_fn=take_terminal,
    ) as training:
        os.close(other_end)
        threading.Thread(target=drain, args=(terminal,), daemon=True).start()
        yield training, terminal


def drain(terminal):
    """Read what a program writes to its terminal, until that is closed."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass


def test_a_second_launcher_is_refused_and_the_run_in_use_goes_on_until_it_is_preempted(recipe, tmp_path):
    run = tmp_path / "run"
    words = ["train", str(recipe), f"run={run}", "train.steps=100000", "train.warmup=0", "data.test=[]", "--devices=2"]
    command = [sys.executable, "-m", "attune", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as launcher:
        wait_for_step(run, 1)
        status = (run / "status.json").read_text()
        second = attune(*words)
        assert second.returncode == 2 and "Another process is training" in second.stderr
        assert (run / "status.json").read_text() == status
        launcher.send_signal(signal.SIGUSR1)
        assert launcher.wait(60) == 75
    assert Run(run).state() == "preempted"
    assert not ranks_of(run)


@pytest.mark.parametrize(("devices", "times"), [(1, 1), (1, 2), (2, 2)])
def test_ctrl_c_saves_and_a_second_one_ends_at_once_without_a_trace(recipe, tmp_path, devices, times):
    """As a terminal has it: the signal goes to every process of the group."""
    run, errors = tmp_path / "run", tmp_path / "errors.txt"
    words = ["train", str(recipe), f"run={run}", "train.steps=100000", "train.warmup=0", f"--devices={devices}"]
    quiet = ["data.test=[]", "train.eval_every=null", "train.keep_best=null"]

    def to_file(_):
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)  # of the ranks, too
        sys.stderr = os.fdopen(2, "w", buffering=1)

    (process,) = start([*words, *quiet], 1, to_file)  # leads a group of its own
    wait_for_step(run, 1)
    if times == 2:
        os.killpg(process.pid, signal.SIGSTOP)  # so that both signals are there before a step is over
        os.killpg(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    (code,) = wait([process], 60)
    assert code in ((75,) if times == 1 else (75, 130)), errors.read_text()
    assert "Traceback" not in errors.read_text()
    if times == 1:
        assert Run(run).state() == "preempted"
    ended = time.monotonic()
    while ranks_of(run) and time.monotonic() < ended + 5:  # they got the signal when the launcher did
        time.sleep(0.05)
    assert not ranks_of(run)

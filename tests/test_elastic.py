"""A range of nodes: one that dies is done without, one that joins takes part, and the bits stay."""

import json
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest

from attune.files import sha256
from attune.launch import nodes

from processes import free_port, kill, start, wait
from tiny import write_recipe

pytestmark = pytest.mark.recipe

STEPS = 300
HAS_ALL_FAULTS = "ATTUNE_TEST_ALL_FAULTS" in os.environ  # then a node is preempted, too


def words(recipe: Path, run: Path) -> list[str]:
    settings = [f"train.steps={STEPS}", "train.strict=true", "train.save_every=5", "train.keep_last=2"]
    quiet = ["train.eval_every=null", "train.keep_best=null", "data.test=[]", "train.track=[]", "--workers=0"]
    return ["train", str(recipe), f"run={run}", *settings, *quiet, "--device=cpu"]


def by_attune(port: int, command: list[str]):
    (launcher,) = start([*command, "--nodes=1-2", f"--rendezvous=127.0.0.1:{port}", "--restarts=5"], 1, settle)
    return launcher


def settle(_) -> None:
    nodes.LAST_CALL_SECONDS = 1
    os.environ["OMP_NUM_THREADS"] = "1"
    for number in (1, 2):  # of the ranks, too
        os.dup2(os.open(PRINTED[0], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))


PRINTED: list[Path] = []  # where the next launcher prints


def worlds(run: Path) -> list[int]:
    """How many ranks have trained, one number after the other."""
    log = run / "log.jsonl"
    lines = map(json.loads, log.read_text().splitlines() if log.exists() else ())
    return [size for size, _ in groupby(len(line["micros"]) for line in lines if line["event"] == "ranks")]


def wait_for_ranks(run: Path, count: int, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while worlds(run)[-1:] != [count] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert worlds(run)[-1:] == [count], PRINTED[0].read_text()


def wait_for_port(port: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)


def bits(run: Path) -> list[str]:
    last = run / f"checkpoints/step-{STEPS:06d}"
    return [sha256(last / name) for name in ("model.safetensors", "optimizer.safetensors")]


def test_a_node_that_dies_is_done_without_and_one_that_joins_takes_part(tmp_path):
    recipe, run, port = write_recipe(tmp_path), tmp_path / "run", free_port()
    PRINTED[:] = [tmp_path / "printed.txt"]
    started = [by_attune(port, words(recipe, run))]
    try:
        wait_for_port(port)  # the first one hosts the rendezvous
        started.append(by_attune(port, words(recipe, run)))
        wait_for_ranks(run, 2)
        kill(started[1:])  # as a power cut: the kernel ends the ranks of a launcher that is gone
        wait_for_ranks(run, 1)
        started.append(by_attune(port, words(recipe, run)))
        if HAS_ALL_FAULTS:
            wait_for_ranks(run, 2)
            os.kill(started[2].pid, signal.SIGTERM)
        codes = wait([started[0], started[2]], 300)
    finally:
        kill(started)
    printed = PRINTED[0].read_text()
    assert codes == [0, 75 if HAS_ALL_FAULTS else 0], printed
    sizes = [2, 1, 2, 1] if HAS_ALL_FAULTS else [2, 1, 2]
    assert worlds(run)[-len(sizes) :] == sizes, printed
    assert re.search(r"Rank 1 \(process \d+ on \S+\) was killed, or its machine is gone\.", printed)
    assert "Waiting for the other nodes" in printed
    assert "Exception raised from" not in printed and "Traceback" not in printed  # no stacks, of C++ or Python
    quiet = tmp_path / "quiet"
    assert wait(start(words(recipe, quiet))) == [0]
    assert bits(run) == bits(quiet)

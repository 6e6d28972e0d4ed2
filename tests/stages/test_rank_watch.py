"""Ranks that train together, one of them slow: the log and the terminal say which, and what it waits for."""

import json
import os
import socket
import sys
import time

import pytest

from attune.batches.load import Reader
from attune.training.micro import Eager

from processes import start, wait
from tiny import write_recipe

pytestmark = pytest.mark.recipe


def slowed(function):
    def slow(*arguments):
        time.sleep(0.05)
        return function(*arguments)

    return slow


@pytest.mark.parametrize(
    ("where", "name", "doing"), [(Reader, "read", "waiting for data"), (Eager, "__call__", "computing")]
)
def test_a_slow_rank_is_named_with_what_it_does(tmp_path, where, name, doing):
    recipe, run, printed = write_recipe(tmp_path), tmp_path / "run", tmp_path / "printed.txt"

    def before(rank: int) -> None:
        if rank == 1:
            setattr(where, name, slowed(getattr(where, name)))
        else:
            os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT), 1)
            sys.stdout = os.fdopen(1, "w", buffering=1)

    settings = ["train.steps=16", "train.eval_every=null", "train.keep_best=null", "data.test=[]", "train.log_every=5"]
    assert wait(start(["train", str(recipe), f"run={run}", *settings, "--workers=0"], 2, before)) == [0, 0]
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    [figures] = [line for line in lines if line["event"] == "ranks"]
    slow = figures["compute_seconds" if doing == "computing" else "data_seconds"]
    assert figures["step"] == 15 and slow[1] > slow[0] + 0.04
    assert len(figures["memory_gib"]) == len(figures["step_seconds"]) == 2
    [named] = [line for line in lines if line["event"] == "straggler"]
    assert (named["rank"], named["doing"], named["host"]) == (1, doing, socket.gethostname())
    verb = {"computing": "computes", "waiting for data": "waits for data"}[doing]
    assert f"rank 1 on {socket.gethostname()} is slow" in printed.read_text() and f"It {verb}" in printed.read_text()

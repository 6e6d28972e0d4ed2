"""torchrun with a range of nodes: one that dies is done without, one that joins takes part, and the bits stay."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attune.files import sha256

from processes import free_port, saved, start, wait, wait_for_step
from tiny import write_recipe

pytestmark = pytest.mark.recipe

STEPS = 400
PATIENT = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3,join_timeout=60"


def words(recipe: Path, run: Path) -> list[str]:
    settings = [f"train.steps={STEPS}", "train.strict=true", "train.save_every=5", "train.keep_last=2"]
    quiet = ["train.eval_every=null", "train.keep_best=null", "data.test=[]", "train.track=[]", "--workers=0"]
    return ["train", str(recipe), f"run={run}", *settings, *quiet, "--device=cpu"]


class Node:
    """A machine of a cluster: torchrun's agent on it, and what was printed there."""

    def __init__(self, folder: Path, name: str, port: int, command: list[str], is_host: bool) -> None:
        self.printed = folder / f"{name}.txt"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"]
        rendezvous = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--rdzv-id=elastic"]
        rendezvous += [f"--rdzv-conf={PATIENT},is_host={int(is_host)}", "--max-restarts=3", "--local-addr=127.0.0.1"]
        with self.printed.open("w") as file:
            self.agent = subprocess.Popen(
                [*torchrun, *rendezvous, "-m", "attune", *command],
                stdout=file,
                stderr=file,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            )

    def kill(self) -> None:
        """As a power cut: kill -9; the kernel ends the ranks of an agent that is gone."""
        self.agent.kill()
        self.agent.wait()


def ranks_at(run: Path) -> list[int]:
    """The world sizes with which a run was resumed."""
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [line["ranks"] for line in lines if line["event"] == "resumed"]


def wait_until_resumed(run: Path, times: int, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while len(ranks_at(run)) < times and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(ranks_at(run)) == times


def bits(run: Path) -> list[str]:
    last = run / f"checkpoints/step-{STEPS:06d}"
    return [sha256(last / name) for name in ("model.safetensors", "optimizer.safetensors")]


def test_a_node_that_dies_is_done_without_and_one_that_joins_takes_part(tmp_path):
    recipe, run, port = write_recipe(tmp_path), tmp_path / "run", free_port()
    command = words(recipe, run)
    nodes = [Node(tmp_path, "a", port, command, is_host=True), Node(tmp_path, "b", port, command, is_host=False)]
    try:
        wait_for_step(run, 5, 120)
        nodes[1].kill()
        wait_until_resumed(run, 1)
        wait_for_step(run, saved(run) + 5)
        nodes.append(Node(tmp_path, "c", port, command, is_host=False))
        assert nodes[0].agent.wait(240) == 0
        assert nodes[2].agent.wait(60) == 0
    finally:
        for node in nodes:
            node.kill()
    printed = [node.printed.read_text() for node in nodes]
    assert ranks_at(run) == [1, 2], printed
    assert re.search(r"Rank \d \(process \d+ on \S+\) was killed, or its machine is gone\.", printed[0])
    assert "Exception raised from" not in "".join(printed)  # no C++ stacks
    quiet = tmp_path / "quiet"
    assert wait(start(words(recipe, quiet))) == [0]
    assert bits(run) == bits(quiet)

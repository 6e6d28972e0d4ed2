"""Two machines, as two network namespaces with a cable between them: ranks on both train one model."""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from attune.files import sha256

from processes import start, wait
from tiny import write_recipe

pytestmark = pytest.mark.recipe

NETWORK = "10.213.77"


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@contextmanager
def two_machines():
    """The names of two network namespaces; .1 and .2 of the network reach one another and nobody else."""
    names = [f"attune-{os.getpid()}-{letter}" for letter in "ab"]
    with ExitStack() as undo:
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode:
                pytest.skip(f"this user may not make network namespaces: {made.stderr.strip()}")
            undo.callback(ip, "netns", "del", name)
        cable = [f"at{os.getpid() % 100_000}{letter}" for letter in "ab"]
        made = ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        if made.returncode:
            pytest.skip(f"this machine has no virtual cables (veth): {made.stderr.strip()}")
        for number, (name, end) in enumerate(zip(names, cable, strict=True), 1):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names


@pytest.fixture(scope="module")
def machines():
    if not shutil.which("ip"):
        pytest.skip("the ip command (iproute2) is not installed")
    with two_machines() as names:
        yield names


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("nodes"))


def words(recipe: Path, run: Path) -> list[str]:
    settings = ["train.strict=true", "train.steps=4", "train.save_every=4", "train.eval_every=4", "data.test=[]"]
    return ["train", str(recipe), f"run={run}", *settings, "--workers=0", "--timeout=30"]


def together(machines: list[str], commands: list[list[str]], **environments: list[dict[str, str]]) -> list[str]:
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", machine, *command],
            env={**os.environ, **variables},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for machine, command, variables in zip(machines, commands, environments["of"], strict=True)
    ]
    try:
        said = [process.communicate(timeout=120)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], said
    return said


def bits(run: Path) -> list[str]:
    return [sha256(run / "checkpoints/step-000004" / name) for name in ("model.safetensors", "optimizer.safetensors")]


@pytest.fixture(scope="module")
def quiet(recipe, tmp_path_factory):
    run = tmp_path_factory.mktemp("quiet") / "run"
    assert wait(start(words(recipe, run))) == [0]
    return bits(run)


def test_torchrun_on_two_machines_trains_what_one_machine_trains(machines, recipe, quiet, tmp_path):
    run = tmp_path / "run"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    torchrun += [f"--master-addr={NETWORK}.1", "--master-port=29500"]
    commands = [[*torchrun, f"--node-rank={node}", "-m", "attune", *words(recipe, run)] for node in (0, 1)]
    together(machines, commands, of=[{}, {}])
    assert bits(run) == quiet


def test_slurm_on_two_machines_trains_what_one_machine_trains(machines, recipe, quiet, tmp_path):
    run = tmp_path / "run"
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
    slurm["SLURM_STEP_NODELIST"] = f"{NETWORK}.1,{NETWORK}.2"
    command = [sys.executable, "-m", "attune", *words(recipe, run)]
    together(machines, [command, command], of=[{**slurm, "SLURM_PROCID": str(rank)} for rank in (0, 1)])
    assert bits(run) == quiet

"""A Ray cluster of one's own: started as children with ports of their own, ended by their process ids."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from processes import free_port

ENVIRONMENT = {
    "RAY_memory_monitor_refresh_ms": "0",  # it watches the machine, and would end us for a neighbour's appetite
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
PORTS = ("node-manager-port", "object-manager-port", "runtime-env-agent-port", "dashboard-agent-listen-port")
RAY = str(Path(sys.executable).with_name("ray"))


@dataclass(frozen=True)
class Head:
    address: str
    jobs: str


@contextmanager
def head(folder: Path, cpus: int = 4, own: Mapping[str, str] = ENVIRONMENT):
    """A head node; everything it starts ends with it. `own` are variables of this node alone."""
    port, jobs = free_port(), free_port()
    words = ["--head", f"--port={port}", f"--dashboard-port={jobs}", f"--num-cpus={cpus}", f"--temp-dir={folder}"]
    words += [f"--ray-client-server-port={free_port()}", "--include-dashboard=true"]
    with _started(words, own=own):
        started = Head(f"127.0.0.1:{port}", f"http://127.0.0.1:{jobs}")
        _wait(lambda: _answer(f"{started.jobs}/api/jobs/") is not None, "job server")
        _wait(lambda: _nodes(started) == 1, "head node")
        yield started


@contextmanager
def node(head: Head, before: Sequence[str] = (), cpus: int = 1, own: Mapping[str, str] = ENVIRONMENT, count: int = 2):
    """Another node of a cluster, once it has joined as one of `count`; `before` are words that start it elsewhere."""
    with _started([f"--address={head.address}", f"--num-cpus={cpus}"], before, own) as process:
        _wait(lambda: _nodes(head) >= count, "further node")
        yield process


def kill_node(process: subprocess.Popen) -> None:
    """A machine that is gone: everything that it started, at once."""
    for pid in [*_below(process.pid), process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def has_worker(process: subprocess.Popen) -> bool:
    """Whether a rank of a training is on a node."""
    return any(b"RayTrainWorker" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in _below(process.pid))


def _below(pid: int) -> list[int]:
    children = [int(each) for file in Path(f"/proc/{pid}/task").glob("*/children") for each in file.read_text().split()]
    return [*children, *(further for child in children for further in _below(child))]


@contextmanager
def _started(words: Sequence[str], before: Sequence[str] = (), own: Mapping[str, str] = ENVIRONMENT):
    ports = [f"--{name}={free_port()}" for name in PORTS]
    command = [*before, RAY, "start", "--block", "--disable-usage-stats", *ports, *words]
    process = subprocess.Popen(
        command,
        env={**os.environ, **ENVIRONMENT, **own},
        cwd=own.get("HOME"),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        below = _below(process.pid)
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)  # then Ray is still talking to nodes that are gone
        for pid in [*below, process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _answer(url: str):
    """What the server says there; None while it does not."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def _nodes(head: Head) -> int:
    """How many nodes live, as far as the head can tell."""
    said = _answer(f"{head.jobs}/api/v0/nodes")
    return sum(node["state"] == "ALIVE" for node in said["data"]["result"]["result"]) if said else 0


def _wait(is_so, what: str, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"no {what} after {seconds} s"
        time.sleep(0.2)

"""The command line in forked processes: real processes to kill, started in a moment because torch is loaded."""

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

# Loaded once, before forking.
import torch._dynamo
import torch.utils.tensorboard  # noqa: F401

from attune.cli import main
from attune.families import ssl  # noqa: F401
from attune.stages import train  # noqa: F401
from attune.tasks import transcribe  # noqa: F401

FORK = multiprocessing.get_context("fork")


def start(words: list[str], ranks: int = 1, before: Callable[[int], None] | None = None) -> list[BaseProcess]:
    """Start `attune WORDS` as ranks; `before(rank)` is called in each of them first."""
    port = free_port()
    started = [FORK.Process(target=_rank, args=(words, rank, ranks, port, before)) for rank in range(ranks)]
    for process in started:
        process.start()
    return started


def attune(*words: object, seconds: float = 240, **environment: str) -> subprocess.CompletedProcess[str]:
    """`attune WORDS` from its start to its end: the exit code, and what it printed."""
    words = tuple(map(str, words))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = FORK.Process(target=_command, args=(words, out, errors, environment))
        process.start()
        process.join(seconds)
        kill([process])
        for file in (out, errors):
            file.seek(0)
        return subprocess.CompletedProcess(words, process.exitcode, out.read(), errors.read())


def wait(processes: list[BaseProcess], seconds: float = 120) -> list[int | None]:
    """Wait for all; when one fails, the others end with it, as a launcher would have it."""
    deadline = time.monotonic() + seconds
    while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
        if any(process.exitcode not in (None, 0, 75) for process in processes):
            kill(processes)
        time.sleep(0.01)
    codes = [process.exitcode for process in processes]
    kill(processes)
    return codes


def saved(run: Path) -> int:
    """The step of a run's newest checkpoint."""
    return max((int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-??????")), default=0)


def wait_for_step(run: Path, step: int, seconds: float = 60) -> None:
    """Wait until a step, or a later one, is saved: a checkpoint is there for a moment only, as newer ones follow."""
    deadline = time.monotonic() + seconds
    while saved(run) < step and time.monotonic() < deadline:
        time.sleep(0.005)
    assert saved(run) >= step


def kill(processes: list[BaseProcess]) -> None:
    """kill -9, all at once."""
    for process in processes:
        if process.is_alive() and process.pid:
            os.kill(process.pid, signal.SIGKILL)
    for process in processes:
        process.join()


def free_port() -> int:
    """A port that is free still when a server binds it: Ray's workers take lower ones, connections higher ones."""
    lowest, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    while True:
        port = random.SystemRandom().randrange(20_000, max(lowest, 30_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class KillPoints:
    """Counts the moments at which a save could be cut off, and kills this process at the wanted one."""

    def __init__(self, wanted: int, log: Path | None = None) -> None:
        self.wanted, self.log, self.count = wanted, log, 0

    def watch(self) -> None:
        self._pass("start")
        for name in ("mkdir", "fsync", "replace", "rename", "rmdir"):
            setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name, real):
        def watched(*arguments, **options):
            answer = real(*arguments, **options)
            self._pass(name)
            return answer

        return watched

    def _pass(self, moment: str) -> None:
        self.count += 1
        if self.log:
            with self.log.open("a") as file:
                file.write(f"{moment}\n")
        if self.count == self.wanted:
            os.kill(os.getpid(), signal.SIGKILL)


def _command(words, out, errors, environment) -> None:
    os.environ.update(environment)
    for number, file in ((1, out), (2, errors)):
        os.dup2(file.fileno(), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    sys.argv = ["attune", *words]
    sys.exit(main(list(words)))


def _rank(words, rank, ranks, port, before) -> None:
    os.setpgid(0, 0)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    if "ATTUNE_TEST_LOUD" not in os.environ:
        os.dup2(quiet, 2)
    if ranks > 1:
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_RANK=str(rank),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    sys.argv = ["attune", *words]
    if before:
        before(rank)
    os._exit(main(words))

"""Child processes: they do not outlive their parent, can be found by run id, and report why they failed."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext

RUN_ID_VARIABLE = "ATTUNE_RUN"  # set for every process that a launcher starts: the id of the launch
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"  # where torchrun's agent reads a rank's error


@dataclass(frozen=True, slots=True)
class RunProcess:
    """A process that attune's launcher started, or a descendant of one."""

    pid: int
    parent: int
    run: str
    command: str


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    `parent` is the parent's process id, if known: a parent that died before this call is noticed too.
    """
    if not sys.platform.startswith("linux"):
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def fork_context() -> ForkContext:
    """How workers are started. From Python 3.14 on, the default sends what they need, which not all of it can be.

    It also runs the user's own script again in each of them.
    """
    from multiprocessing import get_context

    return get_context("fork")


def cores() -> int:
    """The number of cores this process may use, which in a container or batch job may be fewer than the machine's."""
    return len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else os.cpu_count() or 1


@contextmanager
def preserve_environment() -> Iterator[None]:
    """Restore the environment afterwards; variables set meanwhile are for child processes only."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def report_failure(reason: str, error_kind: str = "") -> None:
    """Report to the launcher, if there is one, why this rank is about to exit, and the class of its error."""
    path = os.environ.get(ERROR_FILE)
    if path:
        extra = {"py_callstack": "", "timestamp": str(int(time.time())), "error_kind": error_kind}
        Path(path).write_text(json.dumps({"message": {"message": reason, "extraInfo": extra}}), encoding="utf-8")


def find_run_processes(run: str | None = None) -> Iterator[RunProcess]:
    """The processes of a launch, or of any launch, that /proc shows to this user."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = _read_pairs(folder / "environ")
            if RUN_ID_VARIABLE not in environment or run not in (None, environment[RUN_ID_VARIABLE]):
                continue
            # The name in brackets may contain anything, so fields are counted from its end.
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (OSError, ValueError):
            continue  # it has exited, or belongs to another user
        if state != "Z":
            yield RunProcess(int(folder.name), int(parent), environment[RUN_ID_VARIABLE], command)


def _read_pairs(path: Path) -> Mapping[str, str]:
    pairs = (entry.partition("=") for entry in path.read_bytes().decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}

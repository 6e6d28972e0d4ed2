"""Processes that do not outlive their parent, are found again, and can say why they ended."""

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

RUN_MARK = "ATTUNE_RUN"  # in the environment of every process that a launcher starts: which launch it is of
WORD_FILE = "TORCHELASTIC_ERROR_FILE"  # where torchrun's agent looks for a rank's last words


@dataclass(frozen=True, slots=True)
class Found:
    """A process that a launcher of attune started, or one that descends from it."""

    pid: int
    parent: int
    run: str
    command: str


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the thread that started it ends, however it ends.

    `parent` is the parent's process id when it is known: a parent that died before this call is noticed too.
    """
    if not sys.platform.startswith("linux"):
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def cores() -> int:
    """How many cores this process may use, which in a container or a batch job can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if sys.platform.startswith("linux") else os.cpu_count() or 1


@contextmanager
def environment_kept() -> Iterator[None]:
    """What is set meanwhile, for the processes that are started then, does not stay in this one's environment."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def leave_word(reason: str, error_kind: str = "") -> None:
    """Give the launcher, if there is one, the reason why this rank is about to end, and the name of its error."""
    path = os.environ.get(WORD_FILE)
    if path:
        extra = {"py_callstack": "", "timestamp": str(int(time.time())), "error_kind": error_kind}
        Path(path).write_text(json.dumps({"message": {"message": reason, "extraInfo": extra}}), encoding="utf-8")


def marked(run: str | None = None) -> Iterator[Found]:
    """Every process of a launch, or of any launch; only what /proc shows to this user."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = _read_pairs(folder / "environ")
            if RUN_MARK not in environment or run not in (None, environment[RUN_MARK]):
                continue
            # The name in brackets may hold anything, so what follows is counted from its end.
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (OSError, ValueError):
            continue  # it ended meanwhile, or belongs to somebody else
        if state != "Z":
            yield Found(int(folder.name), int(parent), environment[RUN_MARK], command)


def _read_pairs(path: Path) -> Mapping[str, str]:
    pairs = (entry.partition("=") for entry in path.read_bytes().decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}

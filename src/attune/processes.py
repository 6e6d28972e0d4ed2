"""Processes that do not outlive their parent."""

import ctypes
import os
import signal
import sys


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

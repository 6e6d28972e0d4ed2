"""A group of ranks on this machine: torchrun's agent starts them, and starts them anew when one of them dies.

A stop signal is passed on to the ranks once, and then waited for: they save, and say so by their exit code. A restart
is a new group; it goes on from the newest checkpoint, on as many devices as there still are.
"""

import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from attune.errors import Preempted, RankLost
from attune.processes import RUN_MARK, cores, environment_kept, marked

SHUTDOWN_SECONDS = 20  # between SIGTERM and SIGKILL for ranks whose group has lost a rank: none of them can save
START_SECONDS = 5.0  # for ranks that were about to start when a stop signal came
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # the second is how SLURM announces the end


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a group: the exit code its ranks agree on (over 128: a signal came first), and why."""

    code: int
    reason: str = ""
    error_kind: str = ""  # the name of a rank's own error, such as TrainingError


def start_group(
    devices: Callable[[], int],
    arguments: Sequence[str],
    restarts: int = 0,
    may_restart: Callable[[Outcome], bool] = lambda outcome: True,
    tell: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run `attune ARGUMENTS` as a rank on each of `devices()`; up to `restarts` times again when a rank is lost."""
    with _stopping() as stop:
        while True:
            outcome = _run_once(devices(), arguments, stop)
            if outcome.code != 1 or stop.came or not restarts or not may_restart(outcome):
                return outcome
            restarts -= 1
            tell(f"{outcome.reason} Starting again on {devices()} ranks; {restarts} restarts are left.")


def _run_once(count: int, arguments: Sequence[str], stop: "_Stop") -> Outcome:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # ranks speak for themselves
    config = LaunchConfig(
        run_id=stop.run,
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",  # a port that is free, taken before anybody is told of it
        local_addr="127.0.0.1",
        max_restarts=0,
        signals_to_handle="SIGINT,SIGHUP,SIGQUIT",
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    try:
        with environment_kept():
            os.environ[RUN_MARK] = stop.run
            os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // count)))
            elastic_launch(config, sys.executable)("-m", "attune", *arguments)
    except ChildFailedError as error:
        return _outcome(list(error.failures.values()), stop)
    except SignalException as interrupt:
        return Outcome(128 + int(interrupt.sigval), f"Ended by {interrupt.sigval.name}.")
    return Outcome(0)


def _outcome(failures: Sequence[Any], stop: "_Stop") -> Outcome:
    """A rank's own word (2, 75) before the 1 or the signal of those that fell with it."""
    codes = [failure.exitcode for failure in failures]
    code = next((code for code in (2, 75) if code in codes), 1)
    if stop.came and code != 75:
        return Outcome(128 + stop.came[0], f"Ended by {signal.Signals(stop.came[0]).name} before it could save.")
    killed = [
        f"Rank {each.local_rank} was killed by {_signal(-each.exitcode)}." for each in failures if each.exitcode < 0
    ]
    words = [word for each in failures if each.exitcode > 0 and any(word := _last_words(each.error_file_data))]
    own = [word for word in words if word[1] != RankLost.__name__]
    ended = [f"Rank {each.local_rank} ended with exit code {each.exitcode}." for each in failures]
    reason, error_kind = [*own, *((text, "") for text in killed), *words, *((text, "") for text in ended)][0]
    return Outcome(code, reason, error_kind)


def _last_words(data: Mapping[str, Any]) -> tuple[str, str]:
    """Reason and error kind as `leave_word` wrote them; torch's own stand-in, where it did not, is no dictionary."""
    message = data.get("message")
    return (
        (str(message["message"]), message["extraInfo"].get("error_kind", "")) if isinstance(message, dict) else ("", "")
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class _Stop:
    """The launch's name, and the stop signals that have come."""

    run: str
    came: list[int]


@contextmanager
def _stopping() -> Iterator[_Stop]:
    """Pass the first stop signal on to every rank; more of them change nothing, as ranks that save must not be cut."""
    stop = _Stop(uuid.uuid4().hex[:12], [])
    came, over = threading.Event(), threading.Event()

    def remember(number: int, _: FrameType | None) -> None:
        stop.came.append(number)
        came.set()

    def pass_on() -> None:
        came.wait()
        began, told = time.monotonic(), set[int]()
        while not over.wait(0.1):
            for found in marked(stop.run):
                if found.parent == os.getpid() and found.pid not in told:
                    told.add(found.pid)
                    os.kill(found.pid, stop.came[0])
            if not told and time.monotonic() - began > START_SECONDS:
                # There are no ranks, and the agent that is to start them does not listen. Nothing is lost.
                os._exit(Preempted.exit_code)

    before = {number: signal.signal(number, remember) for number in STOP_SIGNALS}
    threading.Thread(target=pass_on, daemon=True).start()
    try:
        yield stop
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def device_count() -> int:
    """How many CUDA devices there are now; the driver is asked anew each time, as one may be gone since the last."""
    from torch.cuda import device_count as count

    return count()

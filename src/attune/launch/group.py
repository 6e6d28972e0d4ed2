"""A group of ranks on this machine: torchrun's agent starts them, and restarts them when one dies.

A stop signal is forwarded to the ranks once: they save a checkpoint and exit with code 75. A restart is a new group; it
resumes from the newest checkpoint, on as many devices as are left.
"""

import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from attune.errors import Preempted, RankLost
from attune.launch.stopping import INTERRUPTED, call_at_stop_signals
from attune.processes import RUN_ID_VARIABLE, cores, find_run_processes, preserve_environment

SHUTDOWN_SECONDS = 20  # between SIGTERM and SIGKILL for ranks whose group has lost a rank: they cannot save
START_SECONDS = 5.0  # for ranks that were starting when a stop signal was received


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a group: its exit code (over 128: ended by a signal), and the reason."""

    code: int
    reason: str = ""
    error_kind: str = ""  # the name of a rank's own error, such as TrainingError


def start_group(
    devices: Callable[[], int],
    arguments: Sequence[str],
    restarts: int = 0,
    may_restart: Callable[[Outcome], bool] = lambda outcome: True,
    log: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run `attune ARGUMENTS` as a rank on each of `devices()`; restart up to `restarts` times when a rank is lost."""
    with forward_stop_signals() as stop:
        while True:
            outcome = _run_once(devices(), arguments, stop)
            if outcome.code != 1 or stop.received or not restarts or not may_restart(outcome):
                return outcome
            restarts -= 1
            log(f"{outcome.reason} Restarting on {devices()} ranks ({restarts} restarts left).")


def _run_once(count: int, arguments: Sequence[str], stop: "StopRequest") -> Outcome:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # ranks report their own errors
    config = LaunchConfig(
        run_id=stop.run,
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",  # any free port
        local_addr="127.0.0.1",
        max_restarts=0,
        signals_to_handle="SIGQUIT",  # the others are ours
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    try:
        with preserve_environment():
            os.environ[RUN_ID_VARIABLE] = stop.run
            os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // count)))
            elastic_launch(config, sys.executable)("-P", "-m", "attune", *arguments)  # -P: no code of this folder
    except ChildFailedError as error:
        return outcome_of(error.failures, stop)
    except SignalException as interrupt:
        return Outcome(128 + int(interrupt.sigval), f"Stopped by {interrupt.sigval.name}.")
    return Outcome(0)


def outcome_of(failures: Mapping[int, Any], stop: "StopRequest") -> Outcome:
    """What the failures of some ranks come to.

    Exit codes 2 and 75 are a rank's own; 1 and signals may be the consequence of another rank's failure.
    """
    codes = [failure.exitcode for failure in failures.values()]
    code = next((code for code in (2, 75) if code in codes), 1)
    if stop.received and code != 75:
        return Outcome(
            128 + stop.received[0], f"Stopped by {signal.Signals(stop.received[0]).name} before it could save."
        )
    deaths = {rank: -each.exitcode for rank, each in failures.items() if each.exitcode < 0}
    # The launcher ends the ranks beside a failed one with SIGTERM: that is no reason, unless there is no other.
    killed = [_death(rank, number) for rank, number in deaths.items() if number != signal.SIGTERM]
    ended = [_death(rank, number) for rank, number in deaths.items() if number == signal.SIGTERM]
    ended += [(f"Rank {rank} exited with code {each.exitcode}.", "") for rank, each in failures.items()]
    words = [
        word for each in failures.values() if each.exitcode > 0 and any(word := _error_message(each.error_file_data))
    ]
    own = [word for word in words if word[1] != RankLost.__name__]
    reason, error_kind = [*own, *killed, *words, *ended][0]
    return Outcome(code, reason, error_kind)


def _error_message(data: Mapping[str, Any]) -> tuple[str, str]:
    """The reason and error kind that `report_failure` wrote; empty for a rank without them, where torch has no dict."""
    message = data.get("message")
    return (
        (str(message["message"]), message["extraInfo"].get("error_kind", "")) if isinstance(message, dict) else ("", "")
    )


def _death(rank: int, number: int) -> tuple[str, str]:
    return f"Rank {rank} was killed by {_signal(number)}.", ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class StopRequest:
    """The id of the launch, and the stop signals received."""

    run: str
    received: list[int]


@contextmanager
def forward_stop_signals() -> Iterator[StopRequest]:
    """Forward the first stop signal to every rank; more are ignored, so that saving is not interrupted.

    Only a second Ctrl-C ends everything at once. A first one is forwarded as SIGTERM: a terminal sends Ctrl-C to the
    ranks too, and for them it would be the second.
    """
    stop = StopRequest(uuid.uuid4().hex[:12], [])
    received, over = threading.Event(), threading.Event()

    def remember(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and signal.SIGINT in stop.received:
            for found in _ranks(stop.run):
                _send(signal.SIGKILL, found)
            os._exit(INTERRUPTED)
        stop.received.append(number)
        received.set()

    def forward() -> None:
        received.wait()
        began, signaled = time.monotonic(), set[int]()
        number = signal.SIGTERM if stop.received[0] == signal.SIGINT else stop.received[0]
        while not over.wait(0.1):
            for rank in _ranks(stop.run):
                if rank not in signaled:
                    signaled.add(rank)
                    _send(number, rank)
            if not signaled and time.monotonic() - began > START_SECONDS:
                # There are no ranks yet, and the agent that starts them cannot be interrupted. Nothing is lost.
                os._exit(Preempted.exit_code)

    before = call_at_stop_signals(remember)
    threading.Thread(target=forward, daemon=True).start()
    try:
        yield stop
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _send(number: int, process: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(process, number)


def _ranks(run: str) -> list[int]:
    """The process ids of the ranks that this process has started."""
    return [found.pid for found in find_run_processes(run) if found.parent == os.getpid()]


def device_count() -> int:
    """The number of CUDA devices now; queried each time, as a device may fail in between."""
    from torch.cuda import device_count as count

    return count()

"""One machine of a job on several: torchrun's agent meets those of the others, and restarts its ranks with them.

Machines may die and join. Whenever that happens all agents meet again, and new ranks resume from the newest checkpoint.
A mistake to fix ends the job everywhere; a stop signal ends this machine's part, once its ranks have saved.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from attune.errors import TrainingError
from attune.launch.group import SHUTDOWN_SECONDS, Outcome, StopRequest, forward_stop_signals, outcome_of
from attune.launch.waiting import within
from attune.processes import RUN_ID_VARIABLE, cores, preserve_environment

LAST_CALL_SECONDS = 30  # to wait for more nodes, once there are enough
LOOK_SECONDS = 1.0  # between two tries to reach the host of the rendezvous
PROBE_SECONDS = 5.0  # to find out whether anybody is there at all
SAVE_SECONDS = 120  # that ranks may take to save when a machine joins
VARIABLES = {
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGQUIT",  # the others are ours
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # else a machine that joins later waits for an address that nobody sends
}


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the machines of a job meet, under which name, how many there may be, and how long they wait."""

    endpoint: str
    name: str
    nodes: tuple[int, int]
    timeout: float


class _Ended(Exception):
    """Restarting this machine's ranks would not help."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class _NodeAgent(LocalElasticAgent):
    """torchrun's agent, which says why it restarts, and knows when not to."""

    def __init__(self, spec: WorkerSpec, stop: StopRequest, log: Callable[[str], None]) -> None:
        super().__init__(spec, DefaultLogsSpecs(), shutdown_timeout=SHUTDOWN_SECONDS)
        self._stop, self._log = stop, log
        self._seen = RunResult(WorkerState.INIT)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._seen = super()._monitor_workers(worker_group)
        return self._seen

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        self._shutdown(timeout=SAVE_SECONDS)

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        here = socket.gethostname()
        if self._seen.is_failed():
            outcome = outcome_of(self._seen.failures, self._stop)
            if self._stop.received or outcome.code == 2 or outcome.error_kind == TrainingError.__name__:
                raise _Ended(outcome)
            left = f"({self._remaining_restarts} restarts left)"
            self._log(f"{here}: {outcome.reason} Waiting for the other nodes {left}.")
        else:
            self._log(f"{here}: a node joins. All ranks save, and continue with it.")
        super()._restart_workers(worker_group)


def run_node(
    meeting: Meeting, ranks: int, arguments: Sequence[str], restarts: int, log: Callable[[str], None]
) -> Outcome:
    """Run `attune ARGUMENTS` as `ranks` ranks of a job that other machines take part in."""
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # ranks report their own errors
    with forward_stop_signals() as stop, preserve_environment():
        os.environ.update({RUN_ID_VARIABLE: stop.run, **VARIABLES})
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // ranks)))
        least, most = meeting.nodes
        where = RendezvousParameters(
            backend="c10d",
            endpoint=meeting.endpoint,
            run_id=meeting.name,
            min_nodes=least,
            max_nodes=most,
            join_timeout=int(meeting.timeout),
            last_call_timeout=LAST_CALL_SECONDS,
        )
        try:
            handler = within(meeting.timeout, lambda: _open_rendezvous(where, meeting.timeout))
        except (TimeoutError, RendezvousError):
            return _not_opened(meeting)
        try:
            return _run_agent(handler, ranks, arguments, restarts, stop, log)
        except RendezvousClosedError:
            return Outcome(1, "Another node ended the job; see its log.")
        except RendezvousError as error:
            reason = f" ({error})" if str(error) else ""
            return Outcome(
                1,
                f"{least} nodes did not meet at {meeting.endpoint} within {meeting.timeout:.0f} s{reason}. Run the "
                "same command on each; one of them is the host that --rendezvous names.",
            )


def _open_rendezvous(where: RendezvousParameters, timeout: float) -> RendezvousHandler:
    """Connect to the rendezvous, or be its host; a host that starts later is waited for."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return get_rendezvous_handler(where)
        except RendezvousConnectionError:  # after a minute at most, or at once
            if time.monotonic() + LOOK_SECONDS > deadline:
                raise
        time.sleep(LOOK_SECONDS)


def _not_opened(meeting: Meeting) -> Outcome:
    host, _, port = meeting.endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), PROBE_SECONDS).close()
        found = f"What answers at {meeting.endpoint} is no rendezvous (--timeout {meeting.timeout:.0f} s)."
    except (OSError, ValueError):
        found = f"Nobody answered at {meeting.endpoint} for {meeting.timeout:.0f} s (--timeout)."
    return Outcome(
        1, f"{found} --rendezvous names one of the nodes and a free port there. Run the same command on each node."
    )


def _run_agent(
    handler: RendezvousHandler,
    ranks: int,
    arguments: Sequence[str],
    restarts: int,
    stop: StopRequest,
    log: Callable[[str], None],
) -> Outcome:
    spec = WorkerSpec(
        role="rank",
        local_world_size=ranks,
        entrypoint=sys.executable,
        args=("-P", "-m", "attune", *arguments),  # -P: no code of this folder
        rdzv_handler=handler,
        max_restarts=restarts,
    )
    try:
        result = _NodeAgent(spec, stop, log).run()
        outcome = outcome_of(result.failures, stop) if result.is_failed() else Outcome(0)
    except _Ended as end:
        outcome = end.outcome
    if not stop.received:  # what ends one ends all
        handler.shutdown()
    return outcome

"""Heartbeats between ranks, to detect a rank that is unresponsive or late.

A killed rank closes its connections, and the others notice at once. A stopped one (SIGSTOP, a frozen machine, a lost
network) keeps them open: its heartbeat stops. One that is alive but never enters the collective that the others wait
in is found because collectives are counted. The rank that finds it names it, kills it if it is on the same machine, and
exits; the launcher then ends the rest.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from attune.world import World

HEARTBEAT_TIMEOUT = 60.0  # seconds; a heartbeat needs one thread only, however busy its rank is


@dataclass(frozen=True, slots=True)
class RankProcess:
    """The process of a rank; processes with the same `space` can signal each other."""

    pid: int
    host: str
    space: str


@dataclass(frozen=True, slots=True)
class _Heartbeat:
    """The last heartbeat of a rank."""

    text: str
    collectives: int
    changed_at: float  # when it last changed, by this rank's clock


class RankMonitor:
    """Two threads: one exchanges heartbeats through the first rank's store, the other checks them and never blocks."""

    def __init__(
        self,
        store: TCPStore,
        world: World,
        processes: Sequence[RankProcess],
        timeout: float,
        on_loss: Callable[[str, bool], None],
    ) -> None:
        """`on_loss(reason, is_reporter)` is called before this process exits; `is_reporter` on one rank only."""
        self._store, self._rank, self._peers = store, world.rank, [r for r in range(world.size) if r != world.rank]
        self._processes = processes
        self._timeout, self._heartbeat_timeout, self._on_loss = timeout, min(timeout, HEARTBEAT_TIMEOUT), on_loss
        self._period = min(1.0, self._heartbeat_timeout / 8)
        self._collectives = 0
        self._waiting_since: float | None = None
        now = time.monotonic()
        self._last_exchange = now  # when the store last answered all requests
        self._heartbeats = {rank: _Heartbeat("", 0, now) for rank in self._peers}
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._exchange_heartbeats, self._monitor)
        ]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark that this rank waits for the others in a collective."""
        self._collectives += 1
        self._waiting_since = time.monotonic()
        try:
            yield
        finally:
            self._waiting_since = None

    def close(self) -> None:
        """Sign off, so that the end of the heartbeat is not taken for a failure."""
        self._closed.set()
        self._threads[0].join(2.0)

    def _exchange_heartbeats(self) -> None:
        try:
            heartbeat = 0
            while not self._closed.wait(self._period):
                heartbeat += 1
                self._store.set(f"beat/{self._rank}", f"{heartbeat} {self._collectives}")
                for rank in self._peers:
                    self._read_heartbeat(rank)
                self._last_exchange = time.monotonic()
            self._store.set(f"left/{self._rank}", "")
        except (RuntimeError, DistError):
            self._closed.set()  # the first rank has exited, which the process group reports where it matters

    def _read_heartbeat(self, rank: int) -> None:
        if self._store.check([f"left/{rank}"]):
            self._heartbeats.pop(rank, None)
        elif rank in self._heartbeats and self._store.check([f"beat/{rank}"]):
            text = self._store.get(f"beat/{rank}").decode()
            if text != self._heartbeats[rank].text:
                self._heartbeats[rank] = _Heartbeat(text, int(text.split()[1]), time.monotonic())

    def _monitor(self) -> None:
        while not self._closed.wait(self._period):
            found = self._unresponsive() or self._late()
            if found:
                ranks, what = found
                is_lowest = self._rank == min({self._rank, *self._peers} - set(ranks))
                names = " and ".join(map(self._describe, ranks))
                self._on_loss(f"{names} {what} Run the same command to resume from the newest checkpoint.", is_lowest)
                if not is_lowest:
                    time.sleep(4 * self._period)  # once the lost rank is killed, no rank can report
                for rank in ranks:
                    self._kill_rank(rank)
                os._exit(1)  # the main thread may wait in the network library, where no exception reaches it

    def _unresponsive(self) -> tuple[list[int], str] | None:
        now = time.monotonic()
        what = f"sent no heartbeat for {self._heartbeat_timeout:.0f} s: stopped or disconnected. All ranks stop."
        if now - self._last_exchange > self._heartbeat_timeout and self._rank:
            return [0], what  # it hosts the store, and the store does not answer
        silent = [
            rank
            for rank, heartbeat in dict(self._heartbeats).items()
            if now - heartbeat.changed_at > self._heartbeat_timeout
        ]
        # A slow exchange proves nothing about ranks that it did not reach.
        return (silent, what) if silent and now - self._last_exchange < self._heartbeat_timeout / 2 else None

    def _late(self) -> tuple[list[int], str] | None:
        """Ranks that are alive, but did not enter the collective that this rank waits in."""
        since, now = self._waiting_since, time.monotonic()
        if since is None or now - since <= self._timeout:
            return None
        # A rank without recent heartbeats will soon be reported as unresponsive, which is more precise than late.
        alive = [
            (rank, heartbeat)
            for rank, heartbeat in dict(self._heartbeats).items()
            if now - heartbeat.changed_at < self._heartbeat_timeout / 2
        ]
        absent = [rank for rank, heartbeat in alive if heartbeat.collectives < self._collectives]
        what = f"kept the others waiting for {self._timeout:.0f} s (--timeout). All ranks stop."
        return (absent, what) if absent else None

    def _describe(self, rank: int) -> str:
        return f"Rank {rank} (process {self._processes[rank].pid} on {self._processes[rank].host})"

    def _kill_rank(self, rank: int) -> None:
        """Kill a rank of this machine: a stopped process does not react to its launcher's SIGTERM."""
        if self._processes[rank].space == self._processes[self._rank].space:
            with suppress(OSError):
                os.kill(self._processes[rank].pid, signal.SIGKILL)


@contextmanager
def monitored(world: World, timeout: float, on_loss: Callable[[str, bool], None]) -> Iterator[World]:
    """The same world, monitored by heartbeats through a store on the first rank."""
    wait = timedelta(seconds=timeout)
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=wait) if world.is_first else None
    met = world.gather((store.port if store else None, _this_process()))
    store = store or TCPStore(host, met[0][0], is_master=False, timeout=wait)
    watch = RankMonitor(store, world, [place for _, place in met], timeout, on_loss)
    try:
        yield World(world.rank, world.size, world.device, watch.waiting)
    finally:
        watch.close()


def _this_process() -> RankProcess:
    try:
        space = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        space = socket.gethostname()
    return RankProcess(os.getpid(), socket.gethostname(), space)

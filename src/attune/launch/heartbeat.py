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

from attune.errors import AttuneError, RankLost
from attune.processes import RUN_ID_VARIABLE
from attune.world import SOMEBODY, World

HEARTBEAT_TIMEOUT = 60.0  # seconds; a heartbeat needs one thread only, however busy its rank is
SILENT_PERIODS = 3.0  # without a heartbeat, once a collective has failed: this rank is gone
RESUME = "All ranks stop. Run the same command to resume from the newest checkpoint."


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
        self._reasons: dict[int, str] = {}  # why ranks have exited, by their own account
        self._has_store = True
        self._is_reported = False  # a rank that is unresponsive or late
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

    def explain_loss(self) -> RankLost:
        """Which rank is gone and why, when a collective has failed; found within a few heartbeats."""
        give_up = time.monotonic() + 2 * SILENT_PERIODS * self._period
        while not (gone := self._gone()) and time.monotonic() < give_up and not self._is_reported:
            time.sleep(0.05)
        if self._is_reported:
            # The monitor has named a rank and killed it; it ends this process, or this exception does.
            time.sleep(max(0.0, give_up - time.monotonic()))
            return RankLost(SOMEBODY, False)
        if not gone:
            return RankLost(SOMEBODY, self._rank == 0)
        is_lowest = self._rank == min({self._rank, *self._peers} - set(gone))
        # A rank of this machine has printed its own error here, and attune's launcher says why ranks ended.
        is_near = all(rank in self._reasons and self._is_near(rank) for rank in gone)
        is_known = is_near or RUN_ID_VARIABLE in os.environ
        time.sleep(self._period / 2)  # as below
        return RankLost(" ".join(map(self._farewell, gone)), is_lowest and not is_known)

    def _gone(self) -> list[int]:
        if not self._has_store:
            return [0]  # which hosts it
        now, limit = time.monotonic(), SILENT_PERIODS * self._period
        beats = dict(self._heartbeats)  # the other thread forgets ranks that sign off
        silent = [rank for rank, beat in beats.items() if now - beat.changed_at > limit]
        dead = [rank for rank in beats if self._is_near(rank) and not _is_alive(self._processes[rank].pid)]
        return sorted({*self._reasons, *dead, *(silent if now - self._last_exchange < limit else ())})

    def _farewell(self, rank: int) -> str:
        reason = self._reasons.get(rank)
        if reason:
            return f"{self._describe(rank)} has exited: {reason}"
        return f"{self._describe(rank)} was killed, or its machine is gone. {RESUME}"

    def report_exit(self, reason: str) -> None:
        """Let the other ranks know why this one is about to exit."""
        with suppress(RuntimeError, DistError):
            self._store.set(f"reason/{self._rank}", reason)
        if self._rank == 0 and self._heartbeats:
            time.sleep(1.5 * self._period)  # the store ends with this rank: the others read it first

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
            self._has_store = False
            self._closed.set()  # the first rank has exited, which the process group reports where it matters

    def _read_heartbeat(self, rank: int) -> None:
        if rank not in self._heartbeats:
            return
        if self._store.check([f"reason/{rank}"]):
            self._reasons[rank] = self._store.get(f"reason/{rank}").decode()
        if self._store.check([f"left/{rank}"]):
            del self._heartbeats[rank]
        elif self._store.check([f"beat/{rank}"]):
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
                self._is_reported = True
                self._on_loss(f"{names} {what} {RESUME}", is_lowest)
                if not is_lowest:
                    time.sleep(4 * self._period)  # once the lost rank is killed, no rank can report
                for rank in ranks:
                    self._kill_rank(rank)
                # Whoever is gone before the others have looked is taken for the lost rank.
                if self._closed.wait(self._period):
                    return  # the main thread got out by itself
                os._exit(1)  # the main thread may wait in the network library, where no exception reaches it

    def _unresponsive(self) -> tuple[list[int], str] | None:
        now = time.monotonic()
        what = f"sent no heartbeat for {self._heartbeat_timeout:.0f} s: stopped or disconnected."
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
        what = f"kept the others waiting for {self._timeout:.0f} s (--timeout)."
        return (absent, what) if absent else None

    def _describe(self, rank: int) -> str:
        return f"Rank {rank} (process {self._processes[rank].pid} on {self._processes[rank].host})"

    def _is_near(self, rank: int) -> bool:
        """Whether a rank is on this machine."""
        return self._processes[rank].space == self._processes[self._rank].space

    def _kill_rank(self, rank: int) -> None:
        """Kill a rank of this machine: a stopped process does not react to its launcher's SIGTERM."""
        if self._is_near(rank):
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
        yield World(world.rank, world.size, world.device, watch.waiting, watch.explain_loss)
    except RankLost:
        raise
    except Exception as error:
        watch.report_exit(str(error) if isinstance(error, AttuneError) else f"{type(error).__name__}: {error}")
        raise
    finally:
        watch.close()


def _is_alive(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return not Path("/proc/self").exists()  # without /proc nobody knows


def _this_process() -> RankProcess:
    try:
        space = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        space = socket.gethostname()
    return RankProcess(os.getpid(), socket.gethostname(), space)

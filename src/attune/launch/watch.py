"""A watch in every rank: it tells the others that this one lives, and notices the one that does not.

A killed rank closes its connections, and the others hear that at once. A stopped one (SIGSTOP, a frozen machine, a
network that is gone) keeps them open: it is found because its beat stops. One that lives but never comes to where the
others wait is found because they count their meetings. Whoever is found is named, ended where that can be done from
here, and the finder ends too; the launcher, whichever it is, then ends the rest.
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

LONGEST_SILENCE = 60.0  # seconds; a beat needs no more than a thread, however busy its rank is


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Where a rank is: processes see one another where `space` is the same."""

    pid: int
    host: str
    space: str


@dataclass(frozen=True, slots=True)
class _Beat:
    """The last that was heard of a rank."""

    text: str
    meetings: int
    heard: float  # when it last changed, by this rank's clock


class Watch:
    """Two threads: one speaks with the store that the first rank keeps, the other judges, and so never waits for it."""

    def __init__(
        self,
        store: TCPStore,
        world: World,
        places: Sequence[RankPlace],
        timeout: float,
        tell: Callable[[str, bool], None],
    ) -> None:
        """`tell(reason, speaks)` is called before this process ends; `speaks` is true on one rank only."""
        self._store, self._rank, self._others = store, world.rank, [r for r in range(world.size) if r != world.rank]
        self._places = places
        self._timeout, self._silence, self._tell = timeout, min(timeout, LONGEST_SILENCE), tell
        self._period = min(1.0, self._silence / 8)
        self._meetings = 0
        self._waits_since: float | None = None
        now = time.monotonic()
        self._round = now  # when the store last answered everything
        self._heard = {rank: _Beat("", 0, now) for rank in self._others}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._speak, self._judge)]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def meeting(self) -> Iterator[None]:
        """This rank now waits for the others."""
        self._meetings += 1
        self._waits_since = time.monotonic()
        try:
            yield
        finally:
            self._waits_since = None

    def close(self) -> None:
        """Say good-bye, so that nobody takes the silence for a fault."""
        self._over.set()
        self._threads[0].join(2.0)

    def _speak(self) -> None:
        try:
            beat = 0
            while not self._over.wait(self._period):
                beat += 1
                self._store.set(f"beat/{self._rank}", f"{beat} {self._meetings}")
                for rank in self._others:
                    self._hear(rank)
                self._round = time.monotonic()
            self._store.set(f"left/{self._rank}", "")
        except (RuntimeError, DistError):
            self._over.set()  # the first rank has ended, and the process group says so where it matters

    def _hear(self, rank: int) -> None:
        if self._store.check([f"left/{rank}"]):
            self._heard.pop(rank, None)
        elif rank in self._heard and self._store.check([f"beat/{rank}"]):
            text = self._store.get(f"beat/{rank}").decode()
            if text != self._heard[rank].text:
                self._heard[rank] = _Beat(text, int(text.split()[1]), time.monotonic())

    def _judge(self) -> None:
        while not self._over.wait(self._period):
            found = self._silent() or self._absent()
            if found:
                ranks, what = found
                is_lowest = self._rank == min({self._rank, *self._others} - set(ranks))
                names = " and ".join(map(self._name, ranks))
                self._tell(f"{names} {what} The same command goes on from the newest checkpoint.", is_lowest)
                if not is_lowest:
                    time.sleep(4 * self._period)  # once the lost one is killed nobody gets to say anything
                for rank in ranks:
                    self._end_other(rank)
                os._exit(1)  # the main thread may wait in the network library, where no exception reaches it

    def _silent(self) -> tuple[list[int], str] | None:
        now = time.monotonic()
        what = f"did not answer for {self._silence:.0f} s: stopped, or cut off. The run is ended."
        if now - self._round > self._silence and self._rank:
            return [0], what  # it keeps the store, and the store is silent
        silent = [rank for rank, beat in dict(self._heard).items() if now - beat.heard > self._silence]
        # A round that took long says nothing about those who were not asked in it.
        return (silent, what) if silent and now - self._round < self._silence / 2 else None

    def _absent(self) -> tuple[list[int], str] | None:
        """Those who live, and have not come to where this rank has been waiting for so long."""
        since, now = self._waits_since, time.monotonic()
        if since is None or now - since <= self._timeout:
            return None
        # Whoever has not been heard for a while will soon be called silent, which says more than late.
        alive = [(rank, beat) for rank, beat in dict(self._heard).items() if now - beat.heard < self._silence / 2]
        absent = [rank for rank, beat in alive if beat.meetings < self._meetings]
        what = f"kept the others waiting for {self._timeout:.0f} s (--timeout). The run is ended."
        return (absent, what) if absent else None

    def _name(self, rank: int) -> str:
        return f"Rank {rank} (process {self._places[rank].pid} on {self._places[rank].host})"

    def _end_other(self, rank: int) -> None:
        """Kill a rank of this machine: one that is stopped cannot hear its launcher's SIGTERM."""
        if self._places[rank].space == self._places[self._rank].space:
            with suppress(OSError):
                os.kill(self._places[rank].pid, signal.SIGKILL)


@contextmanager
def watched(world: World, timeout: float, tell: Callable[[str, bool], None]) -> Iterator[World]:
    """The same world with a watch on it, kept by a store of its own on the first rank."""
    wait = timedelta(seconds=timeout)
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=wait) if world.is_first else None
    met = world.gather((store.port if store else None, _this_place()))
    store = store or TCPStore(host, met[0][0], is_master=False, timeout=wait)
    watch = Watch(store, world, [place for _, place in met], timeout, tell)
    try:
        yield World(world.rank, world.size, world.device, watch.meeting)
    finally:
        watch.close()


def _this_place() -> RankPlace:
    try:
        space = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        space = socket.gethostname()
    return RankPlace(os.getpid(), socket.gethostname(), space)

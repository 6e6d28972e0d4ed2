"""Reports transfers that bring nothing, while they last: silent servers, and waits before the next attempt."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from attune.sources._cache import TransferProgress, Watch, unwatched

STALL_SECONDS = 5.0  # without a byte, before the first report and between any two
SILENT = "no data from the server"


@dataclass(slots=True)
class Transfer:
    """How far a transfer is, and since when and why it is no further."""

    source: str
    watch: Watch
    reason: str = SILENT
    done: int = 0
    total: int | None = None
    since: float = field(default_factory=time.monotonic)

    def advance(self, done: int, total: int | None) -> None:
        """Report the progress."""
        self.done, self.total, self.since, self.reason = done, total, time.monotonic(), SILENT
        self.watch(TransferProgress(self.source, done, total))

    def wait_for(self, reason: str) -> None:
        """Note why there is no progress now."""
        self.reason = reason

    def report_until(self, is_over: threading.Event) -> None:
        """Report each stall while it lasts."""
        while not is_over.wait(STALL_SECONDS / 5):
            stalled = time.monotonic() - self.since
            if stalled >= STALL_SECONDS:
                self.watch(TransferProgress(self.source, self.done, self.total, f"{self.reason} ({stalled:.0f} s)"))


@contextmanager
def watched(source: str, watch: Watch, reason: str = SILENT) -> Iterator[Transfer]:
    """A transfer whose stalls are reported by a thread of its own, if anybody watches."""
    transfer, is_over = Transfer(source, watch, reason), threading.Event()
    if watch is unwatched:
        yield transfer
        return
    thread = threading.Thread(target=transfer.report_until, args=(is_over,), daemon=True)
    thread.start()
    try:
        yield transfer
    finally:
        is_over.set()
        thread.join()

"""Progress of downloads, first scans, exports and uploads: a bar for each file where it can move, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from attune.display import bar_type, in_notebook, time_left

if TYPE_CHECKING:
    from attune.site import Site
    from attune.sources import TransferProgress

SMALL = 1 << 20  # bytes; smaller files need no bar
LINE_EVERY_SECONDS = 10.0
NETWORK = ("downloading", "uploading")
WAITING = "waiting"  # the verb where nothing is transferred: a store is away, or back


def with_progress(site: Site, stream: TextIO | None = None) -> Site:
    """The site, with the progress of what it downloads, scans and writes on `stream`, by default standard error."""
    return replace(site, cache=replace(site.cache, watch=Transfers(stream or sys.stderr)))


class Transfers:
    """Shows the transfers of several threads."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._is_notebook = in_notebook()
        self._bars: dict[str, Any] = {}
        self._began: dict[str, tuple[float, int]] = {}  # when, and at which byte
        self._next_line: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, progress: TransferProgress) -> None:
        """Show the progress of one file, or that a store is away."""
        if progress.verb == WAITING:
            with self._lock:
                self._say(progress.stalled)
            return
        is_small = progress.total is not None and progress.total <= SMALL
        if is_small and not progress.stalled and progress.source not in self._bars:
            return
        with self._lock:
            if self._stream.isatty() or self._is_notebook:
                self._draw(progress)
            else:
                self._print_line(progress)

    def _draw(self, progress: TransferProgress) -> None:
        bar = self._bars.get(progress.source)
        if bar is None:
            options = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, "leave": False, "dynamic_ncols": True}
            name = progress.source if len(progress.source) <= 50 else f"…{progress.source[-49:]}"
            name = name if progress.verb == "downloading" else f"{progress.verb} {name}"
            begin = {"total": progress.total, "initial": progress.done, "desc": name}
            bar = bar_type(self._is_notebook)(file=self._stream, **begin, **options)
            self._bars[progress.source] = bar
        bar.update(progress.done - bar.n)
        bar.set_postfix_str(progress.stalled)
        if progress.done == progress.total:
            self._bars.pop(progress.source).close()

    def _print_line(self, progress: TransferProgress) -> None:
        now = self._clock()
        is_done = progress.done == progress.total
        start, _ = self._began.setdefault(progress.source, (now, progress.done))
        first_line = now if progress.stalled else now + LINE_EVERY_SECONDS
        if now < self._next_line.setdefault(progress.source, first_line) and not is_done:
            return
        if is_done and now < start + LINE_EVERY_SECONDS and progress.verb not in NETWORK:
            return  # what was on the disk at once is not worth a line
        self._next_line[progress.source] = now + LINE_EVERY_SECONDS
        if progress.stalled:
            self._say(f"waiting for {progress.source}: {progress.stalled}")
            return
        total = f" of {progress.total / 1e6:,.0f}" if progress.total else ""
        line = f"{progress.verb} {progress.source}: {progress.done / 1e6:,.0f}{total} MB"
        left = time_left(self._began[progress.source], (now, progress.done), progress.total or 0)
        self._say(", ".join(filter(None, (line, left))))

    def _say(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

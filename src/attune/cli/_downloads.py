"""Progress of downloads and scans: a bar for each file on a terminal, lines for large files elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from attune.site import Site
    from attune.sources import DownloadProgress

SMALL = 1 << 20  # bytes; smaller files need no bar
LINE_EVERY_SECONDS = 10.0


def with_progress(site: Site) -> Site:
    """The site, with the progress of its downloads on standard error."""
    return replace(site, cache=replace(site.cache, watch=Downloads(sys.stderr)))


class Downloads:
    """Shows the downloads of several threads."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._bars: dict[str, Any] = {}
        self._next_line: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, progress: DownloadProgress) -> None:
        """Show the progress of one file."""
        is_small = progress.total is not None and progress.total <= SMALL
        if is_small and not progress.stalled and progress.source not in self._bars:
            return
        with self._lock:
            if self._stream.isatty():
                self._draw(progress)
            else:
                self._print_line(progress)

    def _draw(self, progress: DownloadProgress) -> None:
        from tqdm import tqdm

        bar = self._bars.get(progress.source)
        if bar is None:
            sizes = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
            name = progress.source if len(progress.source) <= 50 else f"…{progress.source[-49:]}"
            name = name if progress.verb == "downloading" else f"{progress.verb} {name}"
            bar = tqdm(total=progress.total, desc=name, file=self._stream, leave=False, dynamic_ncols=True, **sizes)
            self._bars[progress.source] = bar
        bar.update(progress.done - bar.n)
        bar.set_postfix_str(progress.stalled)
        if progress.done == progress.total:
            self._bars.pop(progress.source).close()

    def _print_line(self, progress: DownloadProgress) -> None:
        now = self._clock()
        is_done = progress.done == progress.total
        first_line = now if progress.stalled else now + LINE_EVERY_SECONDS
        if now < self._next_line.setdefault(progress.source, first_line) and not is_done:
            return
        self._next_line[progress.source] = now + LINE_EVERY_SECONDS
        if progress.stalled:
            print(f"waiting for {progress.source}: {progress.stalled}", file=self._stream, flush=True)
            return
        total = f" of {progress.total / 1e6:,.0f}" if progress.total else ""
        print(f"{progress.verb} {progress.source}: {progress.done / 1e6:,.0f}{total} MB", file=self._stream, flush=True)

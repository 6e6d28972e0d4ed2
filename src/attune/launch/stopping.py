"""Stop signals: a signal only sets a flag, and the training loop decides when it is safe to stop."""

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

# SLURM announces the end with the second; the last comes where the terminal is gone, such as a lost SSH connection.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
INTERRUPTED = 128 + signal.SIGINT
HINT = b"\nStopping after this step, and saving. Ctrl-C again ends at once, without saving.\n"

OnSignal = Callable[[int, FrameType | None], object]


def handle_stop_signals() -> Callable[[], bool]:
    """Handle stop signals as requests to stop; the returned function reports whether one was received."""
    requests: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and signal.SIGINT in requests:
            os._exit(INTERRUPTED)  # files are complete or absent at any moment
        if number == signal.SIGINT and os.environ.get("RANK", "0") == "0":
            os.write(2, HINT)
        requests.append(number)

    call_at_stop_signals(remember)
    return lambda: bool(requests)


def call_at_stop_signals(handler: OnSignal) -> dict[signal.Signals, Any]:
    """Have the handler called at every stop signal, but not at SIGHUP under nohup; returns the former handlers."""
    sys.stdout, sys.stderr = _survive_terminal(sys.stdout), _survive_terminal(sys.stderr)
    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    return {number: signal.signal(number, handler) for number in STOP_SIGNALS if number not in ignored}


def _survive_terminal(stream: TextIO) -> TextIO:
    """The stream, but where its terminal is lost, text goes nowhere: a run would end before anything is saved.

    A write may fail before SIGHUP is received, and a run that ignores SIGHUP is not to stop at all.
    """
    if not stream.isatty() or not isinstance(stream, io.TextIOWrapper):
        return stream
    lines = io.BufferedWriter(_Terminal(stream.fileno(), "wb", closefd=False))
    return io.TextIOWrapper(lines, stream.encoding, stream.errors, line_buffering=True)


class _Terminal(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return len(data)

"""Stop signals: a signal only sets a flag, and the training loop decides when it is safe to stop."""

import errno
import os
import signal
import termios
from collections.abc import Callable
from types import FrameType
from typing import Any

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

    def heed(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_lost_terminal()
        handler(number, frame)

    ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
    return {number: signal.signal(number, heed) for number in STOP_SIGNALS if number not in ignored}


def _leave_lost_terminal() -> None:
    """Write to nowhere where the terminal is gone: it would fail, before anything is saved."""
    for stream in (1, 2):
        try:
            termios.tcgetattr(stream)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)

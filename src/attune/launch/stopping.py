"""Stop signals: a signal only sets a flag, and the training loop decides when it is safe to stop."""

import os
import signal
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)  # SLURM announces the end with the second
INTERRUPTED = 128 + signal.SIGINT
HINT = b"\nStopping after this step, and saving. Ctrl-C again ends at once, without saving.\n"


def handle_stop_signals() -> Callable[[], bool]:
    """Handle SIGTERM, SIGUSR1 and Ctrl-C as stop requests; the returned function reports whether one was received."""
    requests: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and signal.SIGINT in requests:
            os._exit(INTERRUPTED)  # files are complete or absent at any moment
        if number == signal.SIGINT and os.environ.get("RANK", "0") == "0":
            os.write(2, HINT)
        requests.append(number)

    for number in STOP_SIGNALS:
        signal.signal(number, remember)
    return lambda: bool(requests)

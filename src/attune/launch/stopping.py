"""Stop signals: a signal only sets a flag, and the training loop decides when it is safe to stop."""

import signal
from collections.abc import Callable
from types import FrameType


def handle_stop_signals() -> Callable[[], bool]:
    """Handle SIGTERM and SIGUSR1 as stop requests; the returned function reports whether one was received."""
    requests: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        requests.append(number)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, remember)
    return lambda: bool(requests)

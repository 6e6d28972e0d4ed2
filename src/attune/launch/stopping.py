"""Being asked to stop: a signal only sets a flag, and the loop decides when it is safe."""

import signal
from collections.abc import Callable
from types import FrameType


def listen_for_stop() -> Callable[[], bool]:
    """From now on SIGTERM and SIGUSR1 are requests; the returned function tells whether one has come."""
    requests: list[int] = []

    def remember(number: int, _: FrameType | None) -> None:
        requests.append(number)

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, remember)
    return lambda: bool(requests)

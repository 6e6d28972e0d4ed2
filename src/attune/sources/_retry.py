"""The one retry policy of downloads, API requests and range reads.

Waits grow and are jittered, a server's Retry-After is honored within bounds, and failures are counted anew once bytes
have advanced beyond all that was reached before.
"""

import random
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from attune.errors import SourceError

T = TypeVar("T")

LITTLE = 1 << 18  # bytes between two failures; a server that brings less is not waited for without end
MOST_LITTLE = 100  # so many times
LONGEST_PAUSE = 300.0  # seconds in all that a server's Retry-After is obeyed for one transfer


class RetryableError(Exception):
    """A failure that may pass. `received` arrived before it; after `restart`, nothing of that can be used."""

    def __init__(
        self, reason: str, *, after_seconds: float = 0.0, received: bytes = b"", restart: bool = False
    ) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds  # the server's Retry-After
        self.received = received
        self.restart = restart


class NotModified(Exception):
    """The server still has the version that is known."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a silent server is waited for, and how often and after which waits a request is repeated."""

    timeout: float = 30.0
    tries: int = 6  # in a row without a byte of progress
    first_wait: float = 0.5  # doubles each time
    longest_wait: float = 30.0
    patience: float = 0.0  # seconds in a row that a server may be away, however often it was tried

    def wait(self, failures: int, at_least: float = 0.0) -> None:
        """Sleep before the next try; the jitter keeps ranks from asking all at once."""
        wait = min(self.longest_wait, self.first_wait * 2 ** min(failures - 1, 20)) * random.uniform(0.5, 1.5)
        time.sleep(max(wait, at_least))


RANGE_READS = RetryPolicy(tries=7, first_wait=0.25, longest_wait=8.0)


def unreported(reason: str) -> None:
    """Show no failures."""


@dataclass(slots=True)
class Retries:
    """Failures in a row of one transfer; `wait` gives up when the policy does."""

    address: str
    policy: RetryPolicy
    advice: str = "Check the URL and the network."
    report: Callable[[str], None] = unreported  # why there is a wait
    failed: str = "Cannot read {address}"
    failures: int = 0
    reached: int = 0  # the furthest byte so far
    little: int = 0  # failures after fewer than LITTLE new bytes
    paused: float = 0.0  # for Retry-After
    failing_since: float = 0.0  # the first failure in a row

    def wait(self, failure: RetryableError, reached: int = 0) -> None:
        """Wait before the next try, or raise SourceError after the last. `reached` is how far the transfer has come."""
        advanced = reached - self.reached
        self.failures = 1 if advanced > 0 else self.failures + 1
        self.little += advanced < LITTLE
        self.reached = max(self.reached, reached)
        reason, pause = self._reason_and_pause(failure)
        self.failing_since = time.monotonic() if self.failures == 1 else self.failing_since
        is_patient = time.monotonic() - self.failing_since < self.policy.patience
        if not is_patient and (self.failures >= self.policy.tries or self.little >= MOST_LITTLE):
            attempts = f"{self.failures} attempts in a row"
            if self.failures < self.policy.tries:
                attempts = f"{self.little} attempts with little progress"
            failed = self.failed.format(address=self.address)
            raise SourceError(f"{failed}: {reason} ({attempts}). {self.advice}") from failure
        if self.failures == self.policy.tries:
            warnings.warn(f"{self.address}: {reason}. Waiting up to {self.policy.patience:.0f} s.", stacklevel=2)
        self.report(f"{reason}; attempt {self.failures + 1} of {self.policy.tries}")
        self.paused += pause
        self.policy.wait(self.failures, pause)

    def _reason_and_pause(self, failure: RetryableError) -> tuple[str, float]:
        """Why the try failed, and how much of the pause that the server asks for is granted."""
        pause = min(failure.after_seconds, 4 * self.policy.longest_wait, LONGEST_PAUSE - self.paused)
        if failure.after_seconds <= pause:
            return str(failure), pause
        return f"{failure} and asked to wait {failure.after_seconds:,.0f} s, which is too long", pause


def with_retries(
    address: str, request: Callable[[], T], policy: RetryPolicy, report: Callable[[str], None] = unreported
) -> T:
    """The result of a request that may fail for a while."""
    return repeated(request, Retries(address, policy, report=report))


def repeated(request: Callable[[], T], retries: Retries) -> T:
    """The result of a request, tried as often as `retries` allow."""
    while True:
        try:
            return request()
        except RetryableError as failure:
            retries.wait(failure)


def collect(chunks: Iterable[bytes]) -> bytes:
    """All chunks joined; a failure carries those before it."""
    received = bytearray()
    try:
        for chunk in chunks:
            received += chunk
    except RetryableError as failure:
        raise RetryableError(str(failure), received=b"" if failure.restart else bytes(received)) from failure
    return bytes(received)


def is_transient(status: int) -> bool:
    """Whether an HTTP status may be another one the next time."""
    return status >= 500 or status in (408, 425, 429)

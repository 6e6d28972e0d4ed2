"""The one retry policy of downloads, API requests and range reads.

Waits grow and are jittered, a server's Retry-After is honored, and failures are counted anew once bytes have advanced.
"""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from attune.errors import SourceError

T = TypeVar("T")


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

    def wait(self, failures: int, at_least: float = 0.0) -> None:
        """Sleep before the next try; the jitter keeps ranks from asking all at once."""
        wait = min(self.longest_wait, self.first_wait * 2 ** (failures - 1)) * random.uniform(0.5, 1.5)
        time.sleep(max(wait, min(at_least, 4 * self.longest_wait)))


RANGE_READS = RetryPolicy(tries=7, first_wait=0.25, longest_wait=8.0)


@dataclass(slots=True)
class Retries:
    """Failures in a row of one transfer; `wait` gives up when the policy does."""

    address: str
    policy: RetryPolicy
    advice: str = "Check the address and the network."
    failures: int = 0

    def wait(self, failure: RetryableError, has_advanced: bool = False) -> None:
        """Wait before the next try, or raise SourceError after the last."""
        self.failures = 1 if has_advanced else self.failures + 1
        if self.failures >= self.policy.tries:
            raise SourceError(
                f"{self.address} could not be read: {failure} ({self.failures} attempts in a row). {self.advice}"
            ) from failure
        self.policy.wait(self.failures, failure.after_seconds)


def with_retries(address: str, request: Callable[[], T], policy: RetryPolicy) -> T:
    """The result of a request that may fail for a while."""
    retries = Retries(address, policy)
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
